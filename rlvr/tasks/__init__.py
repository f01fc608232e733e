"""Worlds, one a file. ``TASKS`` is the registry: a task's name is the name of its class in lower case."""

from rlvr.tasks.base import Task, check_task
from rlvr.tasks.bilingual import Bilingual
from rlvr.tasks.echo import Echo
from rlvr.tasks.pointer import Pointer

__all__ = ["TASKS", "Bilingual", "Echo", "Pointer", "Task", "check_task"]

TASKS = {task.name: task for task in (Pointer(), Bilingual(), Echo())}
