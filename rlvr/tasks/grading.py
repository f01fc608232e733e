"""Graders that run in a process of their own, with a hard time limit and five outcomes.

A completion may hold ``9^{9^{9^9}}``, ten thousand brackets or a factorial that never ends; signals don't reach such work,
and they don't work outside of the main thread at all. So a library's grader runs in a worker process that is killed when its
time is up, and a new one takes the next item. Cheap checkers of our own need no worker.
"""

import atexit
import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["KINDS", "Grader", "MissingTasks", "Outcome", "require", "shared_grader"]

KINDS = ("right", "wrong", "unparsed", "timeout", "error")
START = 120.0  # seconds that a worker may take to import a library
PATIENCE = 20
# The script's own folder must not stand in front of the standard library; the real path follows as data.
BOOT = "import runpy, sys; sys.path = [p for p in sys.path if p]; runpy.run_path(sys.argv[1], run_name='__main__')"


class MissingTasks(ValueError):
    """A package of the extra ``[tasks]`` is not installed; the message says which and how to install it."""


class Outcome(NamedTuple):
    """``kind``: right, wrong, unparsed, timeout (or too big to try) or error (the grader failed, not the text).

    Of items that aren't gradings it is ready. ``score`` is a scorer's own number, where it gives one; ``data`` what was asked
    for.
    """

    kind: str
    why: str = ""
    score: float | None = None
    data: Mapping[str, Any] | None = None


def require(module: str) -> None:
    """Refuse to go on without a package of the extra ``[tasks]``, in one line.

    >>> require("json")
    """
    if find_spec(module) is None:
        package = module.replace("_", "-")
        raise MissingTasks(
            f"{package} is not installed; `pip install 'rlvr[tasks]'` (or `pip install {package}`) does it"
        )


class Grader:
    """One worker process, started when it is first needed and replaced when it was killed; safe to call from any thread.

    ``seconds`` is the limit of one item in processor time, so that a busy machine changes no verdict; the clock is only asked
    where the kernel keeps no such timer, and after ``PATIENCE`` times as long. A fork starts its own worker.

    >>> with Grader(seconds=2.0) as grader:
    ...     grader.load("json").kind
    'ready'
    """

    def __init__(self, seconds: float = 5.0) -> None:
        self.seconds = seconds
        self._lock = threading.Lock()
        self._process: subprocess.Popen | None = None
        self._owner, self._loaded = 0, set[str]()

    def __enter__(self) -> "Grader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def load(self, module: str) -> Outcome:
        """Import a package in the worker, outside of any item's time."""
        with self._lock:
            return self._load(module)

    def grade(self, grader: str, module: str | None = None, seconds: float | None = None, **item: Any) -> Outcome:
        """Grade one item with ``grader`` (math, gym), after importing ``module`` outside of its time."""
        seconds = self.seconds if seconds is None else seconds
        with self._lock:
            if module is not None and not (module in self._loaded and self._alive()):
                found = self._load(module)
                if found.kind != "ready":
                    return found
            return self._ask({"grader": grader, "seconds": seconds, **item}, seconds)

    def _load(self, module: str) -> Outcome:
        found = self._ask({"grader": "load", "module": module, "seconds": START}, START)
        if found.kind == "ready":
            self._loaded.add(module)
        return found

    def close(self) -> None:
        """End the worker; a later item starts a new one."""
        process, self._process = self._process, None
        if process is None:
            return
        if self._owner == os.getpid():  # in a fork the worker is another's, and only the pipes are ours
            process.kill()
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                stream.close()
        if self._owner == os.getpid():
            process.wait()
        else:
            process.returncode = 0  # nothing of ours to wait for

    def _alive(self) -> bool:
        return self._process is not None and self._owner == os.getpid() and self._process.poll() is None

    def _start(self) -> None:
        self.close()
        self._loaded.clear()
        script = Path(__file__).with_name("worker.py")
        command = [sys.executable, "-c", BOOT, str(script)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=_environment()
        )
        self._owner = os.getpid()
        self._exchange({"path": [place or os.getcwd() for place in sys.path]}, START)

    def _ask(self, item: Mapping[str, Any], seconds: float) -> Outcome:
        try:
            if not self._alive():
                self._start()
            return Outcome(**self._exchange(item, seconds))
        except TimeoutError:
            self.close()
            return Outcome("timeout", f"no answer within {seconds} s")
        except (OSError, EOFError, json.JSONDecodeError) as error:
            if self._out_of_time():
                return Outcome("timeout", f"more than {seconds} s of processor time")
            return Outcome("error", f"the worker ended: {error}")

    def _out_of_time(self) -> bool:
        """Whether the kernel's timer ended the worker."""
        process, ended = self._process, None
        with contextlib.suppress(subprocess.TimeoutExpired):
            ended = process.wait(10) if process is not None else None
        self.close()
        return hasattr(signal, "SIGPROF") and ended == -signal.SIGPROF

    def _exchange(self, item: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        process = self._process
        process.stdin.write(json.dumps(item).encode() + b"\n")
        process.stdin.flush()
        line, until = b"", time.monotonic() + seconds * (PATIENCE if hasattr(signal, "setitimer") else 1)
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(0.0, until - time.monotonic())):
                    raise TimeoutError
                part = os.read(process.stdout.fileno(), 1 << 16)
                if not part:
                    raise EOFError("its output ended")
                line += part
        return json.loads(line)


def _environment() -> dict[str, str]:
    """One thread, no network, and one order of sets: some tasks of reasoning-gym draw from sets, and must repeat."""
    return os.environ | {
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONHASHSEED": "0",
    }


@lru_cache(maxsize=8)
def shared_grader(seconds: float = 5.0) -> Grader:
    """The worker of this process for a time limit; it ends with the process.

    >>> shared_grader() is shared_grader()
    True
    """
    grader = Grader(seconds)
    atexit.register(grader.close)
    return grader
