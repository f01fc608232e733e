"""Colours, named by role, each in a light and a dark tone; figures, styles and scripts take them from here alone.

Figures are drawn with the light tones, and the page's script swaps each for its dark twin, so no two roles
share a light tone. The colours of the signal (teal and brown) and of the arms stay apart under the common
kinds of colour blindness, and no meaning rests on a colour alone: arms have markers, signs have underlines,
verdicts have words.
"""

from typing import NamedTuple

__all__ = ["ARMS", "BAND", "KINDS", "MARKERS", "PALE_KINDS", "ROLES", "Tone", "css_variables", "dark_twins"]


class Tone(NamedTuple):
    """One colour on paper and at night.

    >>> Tone("#fcfbf8", "#131416").dark
    '#131416'
    """

    light: str
    dark: str


ROLES = {
    "paper": Tone("#fcfbf8", "#131416"),
    "card": Tone("#ffffff", "#1b1d20"),
    "ink": Tone("#1d1c1a", "#ebe8e1"),
    "soft": Tone("#5d5952", "#b0aca3"),
    "faint": Tone("#78736a", "#928e85"),
    "rule": Tone("#e3dfd6", "#303338"),
    "grid": Tone("#ece8df", "#282b2f"),
    "wash": Tone("#f4f1ea", "#202327"),
    "base": Tone("#8b867c", "#9a958b"),
    "up": Tone("#0b7a70", "#45c4b5"),
    "down": Tone("#9a5610", "#e8a04f"),
    "holds": Tone("#22734a", "#6cc795"),
    "differs": Tone("#ae3a22", "#f2907a"),
    "undecided": Tone("#75650f", "#d3bf5e"),
    "heat": Tone("#17456f", "#78b6ec"),
    "all_right": Tone("#cfdcd3", "#3a4d43"),
    "mixed": Tone("#d9961c", "#e6b24a"),
    "all_wrong": Tone("#5a5a70", "#8486a2"),
    "on_pale": Tone("#1d1c1b", "#14161a"),
}
ARMS = (
    Tone("#2f6fb0", "#7db4ec"),
    Tone("#2f8f6b", "#62c79d"),
    Tone("#c8502d", "#f08a63"),
    Tone("#7a57b5", "#b79cec"),
    Tone("#a97b12", "#dcb24e"),
    Tone("#b0437f", "#ec8dbd"),
    Tone("#51606f", "#a3b2c1"),
    Tone("#7b5d4b", "#c6a48f"),
)
MARKERS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "hexagon", "triangle-down")
BAND = "2e"  # the alpha of the band around a line
PALE_KINDS = (2, 3, 6)
KINDS = (
    Tone("#4a4a66", "#9796c2"),
    Tone("#a8709a", "#cf98c2"),
    Tone("#e0b7a0", "#e9c7b3"),
    Tone("#d8a23a", "#e2b965"),
    Tone("#6e8b8f", "#95b5b9"),
    Tone("#8a6d4a", "#b89a75"),
    Tone("#b9b35a", "#cdc87c"),
)


def css_variables(dark: bool) -> str:
    """The declarations of every role, arm and kind, for one of the two themes.

    >>> css_variables(dark=True).split(";")[0]
    '--paper: #131416'
    """
    named = {name.replace("_", "-"): tone for name, tone in ROLES.items()}
    named |= {f"arm-{index}": tone for index, tone in enumerate(ARMS)}
    named |= {f"kind-{index}": tone for index, tone in enumerate(KINDS)}
    return "; ".join(f"--{name}: {tone.dark if dark else tone.light}" for name, tone in named.items()) + ";"


def dark_twins() -> dict[str, str]:
    """Light tone to dark tone, for the script that repaints figures.

    >>> dark_twins()["#fcfbf8"]
    '#131416'
    """
    bands = [Tone(tone.light + BAND, tone.dark + BAND) for tone in (*ARMS, ROLES["base"])]
    return {tone.light: tone.dark for tone in (*ROLES.values(), *ARMS, *KINDS, *bands)}
