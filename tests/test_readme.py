"""The README is true: its tree is the tree, its example runs, and the commands it names exist."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from rlvr.cli import NAMES

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "README.md").read_text("utf-8")
MAKE = runpy.run_path(str(ROOT / "docs/readme.py"))


def test_the_tree_is_the_tree() -> None:
    assert MAKE["tree"]() in TEXT, "run `python docs/readme.py`"


def test_the_example_is_short_and_shows_what_it_promises(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 12
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    right, random = (float(line.split()[-1]) for line in done.stdout.splitlines())
    assert right > 0.9 and random < 0.3


@pytest.mark.parametrize("command", sorted(set(re.findall(r"`rlvr ([a-z]+)", TEXT))))
def test_commands_exist(command: str) -> None:
    assert command in NAMES


@pytest.mark.parametrize(
    "target", sorted(set(re.findall(r"(?:^|`)make ([a-z-]+)", TEXT, re.MULTILINE)) | {"test-slow", "check", "clean"})
)
def test_make_targets_exist(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)


def test_files_it_points_to_exist() -> None:
    for name in re.findall(r"\]\(([^)]+)\)", TEXT):
        assert (ROOT / name).is_file(), name
