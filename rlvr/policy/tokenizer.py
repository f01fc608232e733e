"""One character, one token."""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["CharTokenizer"]


@dataclass(frozen=True)
class CharTokenizer:
    """Maps each character of ``alphabet`` to its place in it; ``eos`` ends a completion.

    There is no pad token: padding is a matter of masks, so nothing a policy writes can be mistaken for it.

    >>> tokenizer = CharTokenizer("ab$", "$")
    >>> tokenizer.encode("ba$"), tokenizer.decode([0, 1])
    ([1, 0, 2], 'ab')
    """

    alphabet: str
    eos: str

    def __post_init__(self) -> None:
        if len(set(self.alphabet)) != len(self.alphabet):
            raise ValueError(f"tokenizer: alphabet {self.alphabet!r} repeats a character; each may stand once")
        if len(self.eos) != 1 or self.eos not in self.alphabet:
            raise ValueError(f"tokenizer: eos {self.eos!r} must be one character of {self.alphabet!r}")

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """The ids that end a completion."""
        return (self.alphabet.index(self.eos),)

    def encode(self, text: str) -> list[int]:
        """Ids of a text; a character outside the alphabet is refused by name.

        >>> CharTokenizer("ab$", "$").encode("abc")
        Traceback (most recent call last):
        ValueError: tokenizer: 'c' at place 2 of 'abc' is not in the alphabet 'ab$'
        """
        ids = [self.alphabet.find(character) for character in text]
        if -1 in ids:
            place = ids.index(-1)
            raise ValueError(
                f"tokenizer: {text[place]!r} at place {place} of {text!r} is not in the alphabet {self.alphabet!r}"
            )
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids.

        >>> CharTokenizer("ab$", "$").decode([1, 2])
        'b$'
        """
        return "".join(self.alphabet[i] for i in ids)
