"""A model behind an OpenAI-compatible server (vLLM, llama.cpp, SGLang, ...), to be evaluated like any policy.

It completes, nothing more: its tokens and their probabilities stay on the server, so it can't be trained, ``logps`` and
``entropies`` are NaN, and a completion's "tokens" are the bytes of its text.
"""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from rlvr.policy import Decoding
from rlvr.types import Problem, Samples

__all__ = ["Server"]


class _Answer(NamedTuple):
    text: str
    finished: bool


@dataclass(frozen=True)
class Server:
    """The chat completions of ``model`` at ``base_url`` (up to and with ``/v1``); one request a completion.

    Every completion has a seed of its own, made from its row of ``uniforms``: repeated samples differ, and a server that
    honours seeds gives the same ones again. Requests go out ``parallel`` at a time; a busy or failing server is asked again
    ``retries`` times, after 1, 2, 4 ... times ``pause`` seconds; what it refuses is an error with its own words.

    >>> Server("http://localhost:8000/v1", "tiny").decode([104, 105])
    'hi'
    """

    base_url: str
    model: str
    key: str = ""
    parallel: int = 8
    retries: int = 4
    pause: float = 1.0
    timeout: float = 600.0

    def __post_init__(self) -> None:
        if not self.base_url.startswith(("http://", "https://")):
            raise ValueError(
                f"server: base URL {self.base_url!r}; accepted: http://... or https://..., mostly ending in /v1"
            )

    def sample(
        self,
        problems: Sequence[Problem],
        group_size: int,
        uniforms: np.ndarray,
        limits: Sequence[int],
        decoding: Decoding = Decoding(),
    ) -> Samples:
        """Complete every problem ``group_size`` times, rows problem-major."""
        rows = [(problem, limit) for problem, limit in zip(problems, limits, strict=True) for _ in range(group_size)]
        seeds = (uniforms[:, 0] * 2**31).astype(int).tolist()
        asked = [self._request(*row, seed, decoding) for row, seed in zip(rows, seeds, strict=True)]
        with ThreadPoolExecutor(self.parallel) as pool:
            answers = list(pool.map(self._ask, asked))
        return _samples(answers)

    def encode(self, text: str) -> list[int]:
        """The bytes of a text."""
        return list(text.encode("utf-8", "surrogatepass"))

    def decode(self, ids: Iterable[int]) -> str:
        """The text of bytes."""
        return bytes(ids).decode("utf-8", "surrogatepass")

    def _request(self, problem: Problem, limit: int, seed: int, decoding: Decoding) -> dict[str, Any]:
        asked = {
            "model": self.model,
            "messages": [{"role": "user", "content": problem.prompt}],
            "max_tokens": int(limit),
            "temperature": decoding.temperature,
            "top_p": decoding.top_p,
            "seed": seed,
        }
        return asked | ({"top_k": decoding.top_k} if decoding.top_k else {})  # not every server knows top_k

    def _ask(self, asked: dict[str, Any]) -> _Answer:
        for attempt in range(self.retries + 1):
            try:
                return _answer(self._post(asked), self.base_url)
            except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
                refused = isinstance(error, urllib.error.HTTPError) and error.code < 500 and error.code != 429
                if refused or attempt == self.retries:
                    raise ValueError(f"server {self.base_url}: {_words(error)}") from None
                time.sleep(self.pause * 2**attempt)
        raise AssertionError("unreachable")

    def _post(self, asked: dict[str, Any]) -> Any:
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {self.key}"} if self.key else {})
        url = f"{self.base_url.rstrip('/')}/chat/completions"
        request = urllib.request.Request(url, json.dumps(asked).encode(), headers)
        with urllib.request.urlopen(request, timeout=self.timeout) as reply:
            return json.load(reply)


def _answer(reply: Any, url: str) -> _Answer:
    try:
        choice = reply["choices"][0]
        return _Answer(choice["message"]["content"] or "", choice["finish_reason"] != "length")
    except (LookupError, TypeError):
        raise ValueError(
            f"server {url} answered {str(reply)[:200]!r}; accepted: choices with a message and a finish_reason"
        ) from None


def _words(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"{error.code} {error.reason}: {error.read(500).decode('utf-8', 'replace')}"
    return f"{getattr(error, 'reason', error)}; is it running, and does the URL end in /v1?"


def _samples(answers: Sequence[_Answer]) -> Samples:
    texts = [answer.text.encode("utf-8", "surrogatepass") for answer in answers]
    width = max(1, *map(len, texts))
    tokens, mask = torch.zeros(len(texts), width, dtype=torch.long), torch.zeros(len(texts), width, dtype=torch.bool)
    for row, text in enumerate(texts):
        tokens[row, : len(text)] = torch.tensor(list(text))
        mask[row, : len(text)] = True
    unknown = torch.where(mask, torch.nan, 0.0)
    return Samples(tokens, mask, unknown, unknown, torch.tensor([answer.finished for answer in answers]))
