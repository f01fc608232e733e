"""Between a task's texts and a language model's tokens: the chat template once, one BOS, every EOS, and back.

A task ends its completions with a sign of its own (``$`` in the lab, nothing in text tasks); a language model has end tokens,
often several. Here they are one: whichever end token was drawn reads as the task's sign, and a demonstration that ends with the
sign ends with the model's first end token. Ids that were sampled are never made from text again.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rlvr.types import Problem

__all__ = ["TextTokens"]


@dataclass(frozen=True)
class TextTokens:
    """A Hugging Face ``tokenizer`` with the ids that end a completion and the task's sign ``eos`` for them.

    With ``chat`` a problem's prompt is the user's message in the tokenizer's template, without it the text itself.

    >>> TextTokens(tokenizer, (2,), chat=True).prompt(Problem("7 + 5?", "12"))  # doctest: +SKIP
    [1, 4093, 198, 39, 1232, 216, 37, 47, 2, 198, 1, 520, 9531, 198]
    """

    tokenizer: Any
    eos_ids: tuple[int, ...]
    chat: bool
    eos: str = ""

    def __post_init__(self) -> None:
        if not self.eos_ids:
            raise ValueError("language model: neither its tokenizer nor its configuration names an end token (EOS)")
        if self.chat and not self.tokenizer.chat_template:
            raise ValueError(
                "language model: chat = True, but its tokenizer has no chat template; accepted: chat = False"
            )

    def shown(self, problem: Problem) -> str:
        """The text that the model is given, template and all."""
        return self.tokenizer.decode(self.prompt(problem))

    def prompt(self, problem: Problem) -> list[int]:
        """Token ids of a problem's prompt, with exactly one BOS where the tokenizer has the habit of one."""
        if self.chat:
            messages = [{"role": "user", "content": problem.prompt}]
            text = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        else:
            text = problem.prompt
        ids, bos = self._ids(text), self.tokenizer.bos_token_id
        while len(ids) > 1 and ids[0] == ids[1] == bos:
            ids = ids[1:]
        if bos is not None and self.tokenizer("").input_ids[:1] == [bos] and ids[:1] != [bos]:
            ids = [bos, *ids]
        if not ids:
            raise ValueError(
                f"language model: problem {problem.prompt!r} has an empty prompt; it needs at least one token"
            )
        return ids

    def encode(self, text: str) -> list[int]:
        """Token ids of a completion; one that ends with the task's sign gets the end token."""
        ended = text.endswith(self.eos)
        return self._ids(text.removesuffix(self.eos)) + [self.eos_ids[0]] * ended

    def decode(self, ids: Iterable[int]) -> str:
        """The text of a completion's ids; special tokens other than the last one's end stay visible."""
        ids = list(ids)
        ended = bool(ids) and ids[-1] in self.eos_ids
        text = self.tokenizer.decode(ids[:-1] if ended else ids, clean_up_tokenization_spaces=False)
        return text + self.eos * ended

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False).input_ids)
