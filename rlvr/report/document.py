"""The paper that pages are printed on: templates, escaping, safe JSON, typography, and the writing of the file.

The content security policy of every page allows no connection at all and only the scripts that carry its
nonce, so even a text that slipped through the escaping could neither run nor call anybody.
"""

import base64
import hashlib
import json
import math
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from rlvr.lab.jsonl import replacing
from rlvr.report import theme, words
from rlvr.stats import Interval

__all__ = ["embed", "fill", "interval_words", "percent", "sentence", "typeset", "write"]


def fill(template: str, data: Mapping[str, Any], **content: Any) -> str:
    """A page as text; ``data`` is what its scripts read, by the id of the element that holds it.

    >>> "&lt;b&gt;" in fill("gap.html", {}, text="<b>")
    True
    """
    embedded = {name: embed(value) for name, value in data.items()}
    digest = hashlib.sha256("".join(embedded.values()).encode()).digest()
    environment = _environment()
    return environment.get_template(template).render(
        content,
        data=embedded,
        nonce=base64.b64encode(digest[:18]).decode(),
        light=theme.css_variables(dark=False),
        dark=theme.css_variables(dark=True),
        raw=lambda name: Markup(environment.loader.get_source(environment, name)[0]),
    )


def embed(value: Any) -> Markup:
    """JSON that may stand inside a ``<script>`` element: no ``<``, ``>`` or ``&`` is left in it.

    Numbers that are not finite become ``null``.

    >>> str(embed({"text": "</script><b>"}))
    '{"text":"\\\\u003c/script\\\\u003e\\\\u003cb\\\\u003e"}'
    """
    text = json.dumps(_finite(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("rlvr.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"pct": percent, "interval": interval_words, "set_label": words.set_label}
    environment.filters |= {"sentence": sentence, "typeset": typeset}
    return environment


def percent(share: float) -> str:
    """A share as percent with one digit.

    >>> percent(0.2951)
    '29.5\\xa0%'
    """
    return f"{100 * share:.1f}\u00a0%"


def interval_words(interval: Interval) -> str:
    """An interval as percent.

    >>> interval_words(Interval(0.295, 0.236, 0.361, 200, "problems"))
    '23.6 to 36.1'
    """
    return f"{100 * interval.lo:.1f} to {100 * interval.hi:.1f}"


def sentence(text: str) -> str:
    """A text with a full stop at its end, if it has no end yet.

    >>> sentence("It holds"), sentence("Does it?")
    ('It holds.', 'Does it?')
    """
    return text if text.rstrip().endswith((".", "!", "?", "…")) else f"{text.rstrip()}."


def typeset(text: str) -> str:
    """Arrows, dashes and comparisons as one would print them, with spaces where a line may break.

    >>> typeset("n = 4-8: 29.5 % -> over 98 %, at >= 90 %, -0.2")
    'n\xa0=\xa04–8: 29.5\xa0% → over 98\xa0%, at ≥ 90\xa0%, −0.2'
    """
    plain = (("->", "→"), (">=", "≥"), ("<=", "≤"), (" - ", " − "), (" %", "\u00a0%"))
    for typed, printed in plain:
        text = text.replace(typed, printed)
    text = re.sub(r"\b([a-z]) ([=≤≥<>]) (?=\d)", "\\1\u00a0\\2\u00a0", text)
    return re.sub(r"(?<![\w−])-(?=\d)", "−", re.sub(r"(?<=\d)-(?=\d)", "–", text))


def write(page: str, out: Path) -> Path:
    """Writes a page in one go; what no file can hold (half of a character) becomes a question mark."""
    with replacing(out) as temporary:
        temporary.write_text(page, encoding="utf-8", errors="replace")
    return out
