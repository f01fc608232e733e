"""Find the answer in a text and compare it with the right one, without a library and without running anything.

Two readings of one text: *strict*, the form that the prompt asked for, and *lenient*, wherever an answer may stand. What was
right only leniently failed in form; keeping both apart tells a format gain from a gain in ability.
"""

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

__all__ = [
    "FORMS",
    "PERCENT",
    "Number",
    "boxed",
    "gradable",
    "last_number",
    "read_lenient",
    "read_number",
    "read_strict",
    "same",
]

FORMS: Mapping[str, str] = {
    "bare": "Reply with the answer only.",
    "tags": "Write the final answer between <answer> and </answer>.",
    "boxed": "Write the final answer in \\boxed{}.",
    "hashes": "End with a line that holds #### and the final answer.",
}
"""The forms a prompt may ask for, with the words that ask."""

PERCENT = ("strict", "ratio", "points")
LONGEST_NUMBER = 60
DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+"
NUMBER = re.compile(rf"(?P<sign>[-+]?)(?P<value>{DIGITS})(?:/(?P<below>\d+))?\.?")
LATEX_FRACTION = re.compile(r"\\[dt]?frac(?:\{(-?\d+)\}\{(\d+)\}|(\d)(\d))")
WORD = r"(?:\\[,;! ]|\s)*\\text\{\s*([A-Za-z°][A-Za-z°/. ]{0,30})\}|\s+([A-Za-z][A-Za-z°/ ]{0,30})|(°?[A-Za-z][A-Za-z/]{1,9}|°)"
UNIT = re.compile(rf"(?:{WORD})(?:\^?\{{?[23²³]\}}?)?|\^\{{?\\circ\}}?")
TOKEN = re.compile(rf"(?:{DIGITS})(?:/\d+(?![\d/]))?")


class Number(NamedTuple):
    """A number as it was written: its exact value, whether a percent sign follows, and its unit's words."""

    value: Fraction
    percent: bool = False
    unit: str = ""


def boxed(text: str) -> list[str]:
    r"""What stands in every ``\boxed{...}`` or ``\fbox{...}``, in order, with all inner braces; an unclosed one is left out.

    >>> boxed(r"so \boxed{\frac{3}{4}}, no: \boxed 7")
    ['\\frac{3}{4}', '7']
    """
    found, closes = [], _closing(text)
    for mark in re.finditer(r"\\f?boxed(?=[\s{])\s*|\\fbox(?=[\s{])\s*", text):
        start = mark.end()
        if text[start : start + 1] != "{":
            found += re.findall(r"\A[^\s{}$\\.,]+", text[start : start + LONGEST_NUMBER])
        elif start in closes:
            found.append(text[start + 1 : closes[start]].strip())
    return found


def _closing(text: str) -> dict[int, int]:
    """The place of the closing brace of every opened one that has one; escaped braces are none."""
    opened: list[int] = []
    closes: dict[int, int] = {}
    for brace in re.finditer(r"\\.|[{}]", text, re.DOTALL):
        if brace.group() == "{":
            opened.append(brace.start())
        elif brace.group() == "}" and opened:
            closes[opened.pop()] = brace.start()
    return closes


def read_strict(text: str, form: str) -> str | None:
    r"""The answer where the form says that it stands, or ``None``; of several the last one counts.

    >>> read_strict("The answer is 18.", "boxed"), read_strict(r"It is \boxed{18}.", "boxed")
    (None, '18')
    """
    if form == "bare":
        return text.strip() or None
    found = {"tags": _tagged, "boxed": boxed, "hashes": _hashed}[form](text)
    return (found[-1] or None) if found else None


def _tagged(text: str) -> list[str]:
    return [found.strip() for found in re.findall(r"<answer>((?:(?!<answer>).)*?)</answer>", text, re.DOTALL)]


def _hashed(text: str) -> list[str]:
    return [found.strip() for found in re.findall(r"####[ \t]*([^\n#]*)", text)]


def read_lenient(text: str, prompt: str = "", numeric: bool = False) -> str | None:
    r"""The answer wherever it stands: boxed, tagged, after ``####``, after the words "answer is", in dollar signs.

    The first of these ways that finds anything counts, and of several findings the last. Copies of the prompt are removed
    first. A text without any mark is its own answer when it is one short line that isn't prose, unless the answer is known to
    be ``numeric``; else `last_number` decides.

    >>> read_lenient("The answer is 18."), read_lenient("#### 61\nThat was fun."), read_lenient(r"Thus \[ \boxed{(1,4]} \]")
    ('18', '61', '(1,4]')
    """
    text = text.replace(prompt, " ") if prompt else text
    for found in (boxed(text), _tagged(text), _hashed(text), _announced(text), _in_dollars(text)):
        if found:
            return found[-1] or None
    line = "" if numeric else text.strip()
    if line and "\n" not in line and len(line) <= 2 * LONGEST_NUMBER and not re.search(r"(?<!\\)\b[A-Za-z]{2,}", line):
        return line
    return last_number(text)


def _announced(text: str) -> list[str]:
    marks = r"(?:answer|result)(?:\s+is|\s*:|\s*=)[\s:*]*([^\n]+)"
    tails = [found.strip() for found in re.findall(marks, text, re.IGNORECASE)]
    return [kept for tail in tails if (kept := _first_clause(tail))]


def _first_clause(tail: str) -> str | None:
    """What stands before the clause's end, when it reads as a number or has no words; else its last number."""
    clause = re.split(r"[.,;!?](?=\s|$)|\*\*", tail, maxsplit=1)[0].strip().strip("$* ")
    if read_number(clause) is not None or not re.search(r"(?<!\\)\b[A-Za-z]{3,}", clause):
        return clause or None
    return last_number(clause) or (clause if len(clause.split()) <= 3 else None)


def _in_dollars(text: str) -> list[str]:
    return [
        found.strip()
        for found in re.findall(r"(?<!\\)\$([^$\n]+)\$|\\\(([^\n]+?)\\\)", text)
        for found in found
        if found
    ]


def last_number(text: str) -> str | None:
    r"""The last number of a text that stands for itself; ``None`` when the last one is part of something larger.

    A number inside an expression, a formula or a word is not an answer: ``1 + \sqrt{3}`` doesn't say 3, and ``12 + 35``
    doesn't say 35. Right of an equals sign counts.

    >>> last_number("12 + 35 = 47, I think"), last_number("12 + 35"), last_number(r"1 - \sqrt{3}"), last_number("it is -5.")
    ('47', None, None, '-5')
    """
    text = re.sub(r"(?<!\S)\*\*([^*\n]+)\*\*", r" \1 ", text).replace("−", "-").replace("\\$", "$")
    tokens = list(TOKEN.finditer(text))
    if not tokens:
        return None
    before, after = text[: tokens[-1].start()], text[tokens[-1].end() :]
    sign = re.search(r"(?:^|[\s=(:$])(-)\$?$", before)
    if sign:
        before = before[: sign.start(1)]
        if re.search(r"[\d)}]\s*$", before):  # a minus between two things is an operation
            return None
    if re.search(r"[+\-*/^×÷·⋅{_\\<>!A-Za-z]\s*$", before.rstrip("$ ")[-1:]) and not re.search(
        r"[A-Za-z]\s+\$?$", before
    ):
        return None
    if re.match(r"\s*[+\-*/^×÷·⋅\\]|!\S|[A-Za-z_{%°]|\s*=|[.,]?\d", after):
        return None
    return (sign.group(1) if sign else "") + tokens[-1].group()


def read_number(text: str) -> Number | None:
    r"""A text that is one number and nothing else, exactly; ``None`` for anything more.

    Dollar signs, thousands separators, ``\frac``, a percent sign and a unit of a few words are understood.

    >>> read_number("$1,234.50").value, read_number("35 percent"), read_number("3 apples").unit, read_number("3 - 1")
    (Fraction(2469, 2), Number(value=Fraction(35, 1), percent=True, unit=''), 'apples', None)
    """
    text = text.strip().replace("−", "-").replace("\\$", "$").replace("\\!", "").replace("\\%", "%")
    text = re.sub(r"^[A-Za-z]\s*=\s*", "", text)
    text = re.sub(r"^(?:\\\(|\\\[|\$|£|€)+\s*|\s*(?:\\\)|\\\]|\$)+$", "", re.sub(r"^-\s*\$", "$-", text)).strip()
    if len(text) > LONGEST_NUMBER:
        return None
    text, percent = _without_percent(LATEX_FRACTION.sub(_flat_fraction, text))
    match = NUMBER.match(text)
    if match is None or (match["below"] and not int(match["below"])):
        return None
    tail = text[match.end() :].rstrip()
    unit = UNIT.fullmatch(tail)
    if tail and (unit is None or percent):
        return None
    value = Fraction(match["value"].replace(",", "")) / int(match["below"] or 1)
    return Number(-value if match["sign"] == "-" else value, percent, _unit(unit))


def _unit(match: re.Match | None) -> str:
    return next((word.strip().lower() for word in match.groups() if word), "") if match else ""


def _flat_fraction(match: re.Match) -> str:
    above, below = (match[1], match[2]) if match[1] else (match[3], match[4])
    return f"{above}/{below}"


def _without_percent(text: str) -> tuple[str, bool]:
    bare = re.sub(r"\s*(?:%|\bper\s?cent\b)$", "", text.rstrip("."), flags=re.IGNORECASE)
    return bare, bare != text.rstrip(".")


def same(*, gold: str, answer: str, percent: str = "strict") -> bool | None:
    r"""Whether two answers are the same number or the same words; ``None`` when that can't be told without algebra.

    Symmetric in its two texts. ``percent`` is the policy for a percent sign on one side only: ``strict`` (35% is neither 35
    nor 0.35), ``ratio`` (35% is 0.35) or ``points`` (35% is 35), never two of them. A unit on one side only is ignored; two
    units must agree. A plain number is answered by a plain number: ``12 + 35`` is the question again, not 47.

    >>> same(gold="35%", answer="35 percent"), same(gold="35%", answer="0.35"), same(gold="35%", answer="0.35", percent="ratio")
    (True, False, True)
    >>> same(gold="x+1", answer="1+x") is None
    True
    """
    if percent not in PERCENT:
        raise ValueError(f"percent = {percent!r}; accepted: {', '.join(PERCENT)}")
    if _words(gold) == _words(answer):
        return True
    one, other = read_number(gold), read_number(answer)
    if one is None or other is None:
        settled = one is not None or other is not None or _is_word(gold) or _is_word(answer)
        return False if settled else None
    if one.unit and other.unit and one.unit != other.unit:
        return False
    if one.percent != other.percent:
        if percent == "strict":
            return False
        scale = Fraction(100 if percent == "ratio" else 1)
        one, other = (Number(n.value / scale) if n.percent else n for n in (one, other))
    return one.value == other.value


def gradable(gold: str) -> bool:
    r"""Whether a right answer can be graded at all: not empty, and no sentence.

    A sentence would be read as a product of letters, and then anything might pass or nothing could. Words in ``\text{}``
    are meant.

    >>> gradable("6"), gradable(r"\frac{1}{2}"), gradable("Tuesday"), gradable("see the picture"), gradable(" ")
    (True, True, True, False, False)
    """
    return bool(gold.strip()) and ("\\text" in gold or len(re.findall(r"(?<!\\)\b[A-Za-z]{2,}", gold)) < 3)


def _words(text: str) -> str:
    text = re.sub(r"\\(?:text|mathrm|textbf)\s*\{([^{}]*)\}", r"\1", text).strip().strip("$").strip()
    return " ".join(text.rstrip(".").split()).casefold()


def _is_word(text: str) -> bool:
    """Prose or a name, where algebra has nothing to say: several letters in a row that no backslash makes a command."""
    return re.fullmatch(r"[A-Za-z][A-Za-z' -]{2,}", _words(text)) is not None
