"""What a number was made with: versions, commit, threads, seed. No host name, no user, no path.

Versions come from the installed packages' records, so nothing is imported to be asked.
"""

import os
import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import rlvr
from rlvr.lab.jsonl import write_json

__all__ = ["commit", "environment", "write_environment"]

PACKAGES = ("torch", "numpy", "scipy", "safetensors", "pyarrow", "transformers", "trl")


def write_environment(folder: str | os.PathLike[str], seed: int, threads: int, **facts: Any) -> None:
    """Writes ``env.json``: ``environment()`` with the run's seed, its number of threads and further
    ``facts``.

    >>> import tempfile
    >>> from rlvr.lab.jsonl import read_json
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_environment(folder, seed=0, threads=1, seconds=12.5)
    ...     [read_json(Path(folder, "env.json"))[key] for key in ("seed", "threads", "seconds")]
    [0, 1, 12.5]
    """
    write_json(Path(folder, "env.json"), environment() | {"seed": seed, "threads": threads} | facts)


def environment() -> dict[str, Any]:
    """The versions at work, the system and the commit of this library (``None`` where it is no git checkout).

    >>> sorted(environment())
    ['commit', 'cores', 'machine', 'modified', 'python', 'system', 'versions']
    """
    found = commit()
    return {
        "versions": {"rlvr": rlvr.__version__} | {name: _version(name) for name in PACKAGES if _version(name)},
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "commit": found and found[0],
        "modified": found and found[1],
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


@cache
def commit() -> tuple[str, bool] | None:
    """The commit of the library's own checkout and whether tracked files differ from it, ``None`` without
    git.

    An installed copy inside some other project's checkout has no commit: that project's would be the wrong
    one.

    >>> commit() is None or len(commit()[0]) == 40
    True
    """
    source = Path(rlvr.__file__).resolve().parent
    top = _git(source, "rev-parse", "--show-toplevel")
    if top is None or Path(top).resolve() != source.parent:
        return None
    head = _git(source, "rev-parse", "--verify", "HEAD")
    return None if head is None else (head, bool(_git(source, "status", "--porcelain", "--untracked-files=no")))


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
