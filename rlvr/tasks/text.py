"""Judging free text: one place where strict and lenient reading, the right answer and the failure kinds come together.

A text task has no alphabet (``alphabet`` is ``None``): its prompts and completions are any text, so it needs a policy with a
tokenizer of its own. Its demonstrations carry no end sign (``eos`` is empty): a policy ends them with its own.
"""

from collections.abc import Callable
from typing import NamedTuple

from rlvr.tasks.answers import FORMS, read_lenient, read_strict
from rlvr.types import Verdict

__all__ = ["GRADINGS", "TEXT_KINDS", "Checked", "check_settings", "demonstration", "judge"]

GRADINGS = ("strict", "lenient")
TEXT_KINDS = ("wrong", "form", "unparsed", "timeout", "error")


class Checked(NamedTuple):
    """What a task says of one answer: right, wrong, unparsed, timeout or error, and what the answer counts as in a vote."""

    kind: str
    answer: str | None = None


def judge(
    text: str,
    form: str,
    grading: str,
    check: Callable[[str], Checked],
    read: Callable[[str], str | None] = read_lenient,
) -> Verdict:
    """A verdict on any text: ``check`` judges the answer that the form or else ``read`` finds.

    Under ``strict`` grading a right answer outside of its form has the kind ``form``: lenient accuracy is the share of
    ``correct`` plus that of ``form``. Under ``lenient`` grading it is correct. The kind ``error`` is the grader's failure, not
    the text's.

    >>> check = lambda answer: Checked("right" if answer == "18" else "wrong", answer)
    >>> [judge("The answer is 18.", "boxed", grading, check).kind for grading in ("strict", "lenient")]
    ['form', 'correct']
    """
    formed = read_strict(text, form)
    found = Checked("unparsed") if formed is None else check(formed)
    if found.kind == "right":
        return Verdict(True, "correct", found.answer)
    loose = read(text)
    if loose is not None and loose != formed:
        found = check(loose)
    if found.kind != "right":
        return Verdict(False, found.kind, found.answer)
    return Verdict(True, "correct", found.answer) if grading == "lenient" else Verdict(False, "form", found.answer)


def demonstration(answer: str, form: str) -> str:
    r"""An answer in its form.

    >>> demonstration("18", "boxed"), demonstration("18", "tags")
    ('\\boxed{18}', '<answer>18</answer>')
    """
    return {
        "bare": answer,
        "tags": f"<answer>{answer}</answer>",
        "boxed": f"\\boxed{{{answer}}}",
        "hashes": f"#### {answer}",
    }[form]


def check_settings(task: str, form: str, grading: str, max_new_tokens: int) -> None:
    """Refuse settings that no text task accepts.

    >>> check_settings("arithmetic", "bare", "exact", 16)
    Traceback (most recent call last):
    ValueError: task arithmetic: grading = 'exact'; accepted: strict, lenient
    """
    for name, value, accepted in (("form", form, FORMS), ("grading", grading, GRADINGS)):
        if value not in accepted:
            raise ValueError(f"task {task}: {name} = {value!r}; accepted: {', '.join(accepted)}")
    if not isinstance(max_new_tokens, int) or isinstance(max_new_tokens, bool) or max_new_tokens < 1:
        raise ValueError(f"task {task}: max_new_tokens = {max_new_tokens!r}; accepted: a whole number >= 1")
