"""A model behind an OpenAI-compatible server: a server on loopback answers, fails, refuses and is asked again."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from rlvr.interop.server import Server
from rlvr.lab.evaluate import evaluate
from rlvr.policy import Decoding
from rlvr.tasks import TASKS
from rlvr.types import Problem


class Loopback(ThreadingHTTPServer):
    """Answers with what ``reply`` makes of a request: a status and a body."""

    def __init__(self, reply) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.reply, self.asked = reply, []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, dict(self.headers), asked))
        status, body = self.server.reply(asked, len(self.server.asked))
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None: ...


@pytest.fixture
def serve() -> Iterator:
    running = []

    def start(reply) -> Loopback:
        server = Loopback(reply)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        running.append(server)
        return server

    yield start
    for server in running:
        server.shutdown()
        server.server_close()


def said(text: str | None, reason: str = "stop") -> tuple[int, dict]:
    return 200, {"choices": [{"message": {"content": text}, "finish_reason": reason}]}


def ask(server: Loopback, problems, group: int = 1, decoding: Decoding = Decoding(), **settings):
    policy = Server(server.url, "tiny", pause=0.0, **settings)
    draws = np.random.default_rng(0).random((len(problems) * group, 4))
    return policy, policy.sample(problems, group, draws, [7] * len(problems), decoding)


def test_rows_are_problem_major_and_every_sample_has_its_own_seed(serve) -> None:
    server = serve(lambda asked, number: said(asked["messages"][0]["content"] + "é" * (number % 3)))
    problems = [Problem("a", "a"), Problem("bb", "b")]
    policy, drawn = ask(server, problems, group=3, decoding=Decoding(0.5, top_k=4, top_p=0.9), key="secret")
    texts = [policy.decode(row[keep].tolist()) for row, keep in zip(drawn.tokens, drawn.mask, strict=True)]
    assert [text.rstrip("é") for text in texts] == ["a"] * 3 + ["bb"] * 3
    sent = [asked for _, _, asked in server.asked]
    assert len({asked["seed"] for asked in sent}) == 6
    assert {(a["temperature"], a["top_p"], a["top_k"], a["max_tokens"], a["model"]) for a in sent} == {
        (0.5, 0.9, 4, 7, "tiny")
    }
    assert {path for path, _, _ in server.asked} == {"/v1/chat/completions"}
    assert all(headers["Authorization"] == "Bearer secret" for _, headers, _ in server.asked)
    again, before = ask(server, problems, group=3)[1], sorted(asked["seed"] for asked in sent)
    assert sorted(asked["seed"] for _, _, asked in server.asked[6:]) == before and again.finished.all()


def test_what_was_cut_off_is_not_finished_and_nothing_is_not_a_crash(serve) -> None:
    server = serve(
        lambda asked, number: said(*((None, "stop") if asked["messages"][0]["content"] == "x" else ("ab", "length")))
    )
    _, drawn = ask(server, [Problem("x", ""), Problem("y", "")])
    assert drawn.finished.tolist() == [True, False]
    assert drawn.mask.sum(1).tolist() == [0, 2]
    assert drawn.logps[1].isnan().all() and (drawn.logps[0] == 0).all()


def test_a_busy_server_is_asked_again_and_a_refusal_is_told(serve) -> None:
    busy = serve(lambda asked, number: (503, {}) if number < 3 else said("ok"))
    policy, drawn = ask(busy, [Problem("a", "a")])
    assert policy.decode(drawn.tokens[0].tolist()) == "ok" and len(busy.asked) == 3
    refusing = serve(lambda asked, number: (404, {"error": "no model tiny"}))
    with pytest.raises(ValueError, match=r"404.*no model tiny"):
        ask(refusing, [Problem("a", "a")])
    assert len(refusing.asked) == 1
    with pytest.raises(ValueError, match="503"):
        ask(serve(lambda asked, number: (503, {})), [Problem("a", "a")], retries=1)
    with pytest.raises(ValueError, match="choices"):
        ask(serve(lambda asked, number: (200, {"hello": 1})), [Problem("a", "a")])
    with pytest.raises(ValueError, match="is it running"):
        Server("http://127.0.0.1:1/v1", "tiny", retries=0).sample([Problem("a", "a")], 1, np.zeros((1, 1)), [1])
    with pytest.raises(ValueError, match="accepted: http"):
        Server("localhost:8000", "tiny")


def test_it_is_evaluated_like_any_policy(serve) -> None:
    task = TASKS["echo"]
    problems = [task.problem(np.random.default_rng(seed)) for seed in range(4)]
    gold = {problem.prompt: task.gold(problem) for problem in problems}
    server = serve(lambda asked, number: said(gold[asked["messages"][0]["content"]] if asked["temperature"] else ""))
    policy = Server(server.url, "tiny")
    right = evaluate(policy, task, {"test": problems}, samples=2, decoding=Decoding(1.0))["columns"]
    assert right["correct"] == [2] * 4 and right["length"] == [len(gold[p.prompt]) for p in problems]
    silent = evaluate(policy, task, {"test": problems})["columns"]
    assert silent["correct"] == [0] * 4 and silent["length"] == [0.0] * 4
