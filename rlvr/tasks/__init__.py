"""Worlds, one a file; `rlvr.tasks.registry` finds them by name."""

from rlvr.tasks.arithmetic import Arithmetic
from rlvr.tasks.base import Task, check_task
from rlvr.tasks.bilingual import Bilingual
from rlvr.tasks.countdown import Countdown, Game24
from rlvr.tasks.echo import Echo
from rlvr.tasks.grading import MissingTasks
from rlvr.tasks.gym import Gym
from rlvr.tasks.pointer import Pointer
from rlvr.tasks.questions import Questions
from rlvr.tasks.registry import TASKS, load_task

__all__ = [
    "TASKS",
    "Arithmetic",
    "Bilingual",
    "Countdown",
    "Echo",
    "Game24",
    "Gym",
    "MissingTasks",
    "Pointer",
    "Questions",
    "Task",
    "check_task",
    "load_task",
]
