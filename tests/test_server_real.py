"""A real OpenAI-compatible server on loopback, transformers' own, answers as the model that it serves."""

import importlib.util
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator

import numpy as np
import pytest

if any(importlib.util.find_spec(module) is None for module in ("transformers", "fastapi", "uvicorn", "openai")):
    pytest.skip("the server is not installed: pip install 'rlvr[hf,serve]'", allow_module_level=True)

from tiny_models import save

from rlvr.cli import main
from rlvr.interop.server import Server
from rlvr.lab.evaluate import GREEDY
from rlvr.policy import HFPolicy
from rlvr.types import Problem

PROBLEMS = [Problem(text, "a") for text in ("ab:", "a1:", "?h12:", "cdef:", "7 8:")]
LIMITS = [3, 9, 12, 12, 5]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return str(save(tmp_path_factory.mktemp("served") / "tiny"))


@pytest.fixture(scope="module")
def url(model: str) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", model]
    command += ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    offline = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=offline, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as server:
        try:
            _wait(server, port)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.kill()


def _wait(server: subprocess.Popen, port: int) -> None:
    for _ in range(600):
        if server.poll() is not None:
            raise RuntimeError(f"the server ended: {server.stderr.read()[-2000:]}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1):
                return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError("the server did not come up within two minutes")


def test_greedy_answers_are_those_of_the_model_that_is_served(model: str, url: str) -> None:
    ours, theirs = HFPolicy.open(model, eos="</s>"), Server(url, model, parallel=2)
    nothing = np.zeros((len(PROBLEMS), max(LIMITS)))
    texts = []
    for policy in (ours, theirs):
        drawn = policy.sample(PROBLEMS, 1, nothing, LIMITS, GREEDY)
        lengths = drawn.mask.sum(1).tolist()
        rows = zip(drawn.tokens.tolist(), lengths, strict=True)
        # A server says no special tokens.
        said = [re.sub("<[^>]*>", "", policy.decode(ids[:length])) for ids, length in rows]
        texts.append(list(zip(said, drawn.finished.tolist(), strict=True)))
    assert texts[0] == texts[1]
    assert len({text for text, _ in texts[0]}) > 1


def test_the_command_line_evaluates_it_and_a_wrong_name_is_one_line(model: str, url: str, capsys) -> None:
    words = ["eval", "--base-url", url, "--task", "arithmetic(kind='sum', max_new_tokens=4)", "--problems", "3"]
    assert main([*words, "--model", model]) == 0
    assert "95 % interval" in capsys.readouterr().out
    assert main([*words, "--model", "somebody/else"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("rlvr: ") and error.count("\n") == 1 and "somebody/else" in error
