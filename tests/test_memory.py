"""Freed blocks stay with the process where it asks for that."""

import subprocess
import sys

import pytest

from rlvr.lab.memory import keep_freed_memory

PAGES = """
import ctypes, resource, sys
import torch
from rlvr.lab.memory import MMAP_THRESHOLD, keep_freed_memory
# The default, held fast: left alone it grows with use, depending on what else was freed.
ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, 128 << 10)
if sys.argv[1] == "keep":
    keep_freed_memory()
def step():
    return [torch.ones(1 << 20) for _ in range(4)]
for _ in range(5):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(200):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def pages(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", PAGES, how], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(not keep_freed_memory(), reason="no GNU C library")
def test_the_same_blocks_serve_every_step() -> None:
    assert pages("keep") < pages("give back") / 10
