"""Rewards by hand: values, group rewards, names with settings, and what is refused."""

import math

import numpy as np
import pytest

from rlvr.rewards import REWARDS, Completion, Format, GroupReward, Majority, load_reward, pay
from rlvr.types import Problem, Verdict

PROBLEM = Problem("ab,bc,ca,?a2:", "c", {"k": 2, "n": 3})


def written(text: str, answer: str | None, tokens: int | None = None, problem: Problem = PROBLEM) -> Completion:
    right = answer is not None and answer == problem.answer
    verdict = Verdict(right, "correct" if right else "lookup", answer)
    return Completion(problem, text, verdict, text.endswith("$"), len(text) if tokens is None else tokens)


def paid(name: str, *group: Completion) -> list[float]:
    return pay(name, load_reward(name), group, np.random.default_rng(0))


RIGHT, WRONG, BLURTED, CUT = written("bc|c$", "c"), written("ba|a$", "a"), written("|c$", "c"), written("bcabca", None)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("correct", [1, 0, 1, 0]),
        ("format", [1, 1, 0, 0]),
        ("format_gate", [1, 0, 0, 0]),
        ("constant(value=0.25)", [0.25] * 4),
        ("length", [-5, -5, -3, -6]),
        ("overlong(limit=6, cache=2)", [-0.5, -0.5, 0, -1]),
        ("kimi_length", [0.5 - 2 / 3, 0.5 - 2 / 3, 0.5, -0.5]),  # lengths 5, 5, 3, 6; min 3, max 6
        ("l1_exact(target=4, alpha=0.1)", [0.9, -0.1, 0.9, -0.2]),
        ("l1_max(target=4, alpha=0.1)", [0.4, 0, 0.6, 0]),
        ("majority", [1, 0, 1, 0]),
        ("language", [1, 1, 1, 1]),
    ],
)
def test_values_by_hand(name: str, expected: list[float]) -> None:
    assert paid(name, RIGHT, WRONG, BLURTED, CUT) == pytest.approx(expected)


def test_cosine_ends_where_the_paper_says() -> None:
    values = [paid("cosine(limit=10)", written("", answer, tokens=n))[0] for answer in "ca" for n in (0, 5, 10)]
    assert values == pytest.approx([2.0, 1.5, -10.0, -10.0, -5.0, -10.0])


def test_b103_a_dot_meets_line_ends() -> None:
    form = Format(r"<think>.*</think>\s*<answer>.+</answer>")
    text = "<think>\na\n</think>\n<answer>14</answer>"
    assert form(written(text, None), np.random.default_rng(0)) == 1.0
    assert form(written(text + "x", None), np.random.default_rng(0)) == 0.0


@pytest.mark.parametrize(("length", "value"), [(16, 0.0), (18, -0.5), (20, -1.0), (21, -1.0)])
def test_b107_soft_overlong(length: int, value: float) -> None:
    assert paid("overlong(limit=20, cache=4)", written("", None, tokens=length)) == [value]


def test_the_wrong_label_is_one_wrong_letter_of_the_prompt_and_stays() -> None:
    pays = [letter for letter in "abc" if paid("wrong_label", written("", letter))[0] == 1.0]
    assert len(pays) == 1 and pays != [PROBLEM.answer]
    assert [letter for letter in "abc" if paid("wrong_label", written("", letter))[0] == 1.0] == pays
    assert math.isnan(paid("wrong_label", written("", "c", problem=Problem("c:", "c")))[0])
    labels = set()
    for letters in ("abcdef", "abcdeg", "abcdeh", "abcdei", "abcdej"):
        problem = Problem(",".join(letters) + ":", "a")
        labels |= {letter for letter in letters if paid("wrong_label", written("", letter, problem=problem))[0] == 1.0}
    assert len(labels) > 1  # not always the same place of the alphabet


def test_random_pays_its_share_and_needs_no_merit() -> None:
    group = [CUT] * 4000
    assert np.mean(paid("random", *group)) == pytest.approx(0.5, abs=0.03)
    assert np.mean(paid("random(probability=0.1)", *group)) == pytest.approx(0.1, abs=0.02)


def test_majority_leaves_out_what_does_not_answer() -> None:
    assert paid("majority", WRONG, WRONG, RIGHT, CUT) == [1, 1, 0, 0]
    assert paid("majority", CUT, CUT, WRONG) == [0, 0, 1]
    assert np.isnan(paid("majority", CUT, CUT)).all()


def test_language_is_that_of_the_prompt() -> None:
    upper = Problem("AB,BA,?A2:", "A")
    texts = [written(text, "A", problem=upper) for text in ("BA|A$", "ba|a$", "Ba|A$", "|$")]
    assert paid("language", *texts) == pytest.approx([1, 0, 2 / 3, 0])


def test_every_registered_reward_pays_a_finite_number_or_nothing() -> None:
    for name in REWARDS.keys() - {"verifier"}:  # which needs a trained one: test_verifier
        values = paid(name, RIGHT, WRONG, BLURTED, CUT)
        assert len(values) == 4 and all(math.isnan(value) or math.isfinite(value) for value in values), name


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("corect", "unknown; accepted: correct"),
        ("overlong(limitt=3)", r"\['limitt'\]; accepted: limit, cache"),
        ("overlong(3)", "without its name"),
        ("overlong(limit=", "can't be read"),
        ("overlong(limit=2, cache=4)", "0 < cache <= limit"),
        ("correct(weight=2)", "no settings"),
        ("random(probability=2)", "0 to 1"),
        ("format(pattern='(')", "no regular expression"),
        ("overlong(limit=__import__('os').getpid())", "can't be read"),
        ("nowhere.py:f", "no file"),
    ],
)
def test_mistakes_are_named(name: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        load_reward(name)


class Short(GroupReward):
    """Gives one value too few."""

    def of_group(self, group, generator):
        """Too few."""
        return [0.0] * (len(group) - 1)


@pytest.mark.parametrize(
    ("reward", "complaint"),
    [
        (Short(), "gave 1 values for 2"),
        (GroupReward(), "must define of_group"),
        (lambda completion, generator: "1", "gave '1'"),
        (lambda completion, generator: math.inf, "gave inf"),
        (lambda completion, generator: [1.0], r"gave \[1.0\]"),
    ],
)
def test_what_is_no_number_is_refused(reward, complaint: str) -> None:
    with pytest.raises((ValueError, TypeError), match=complaint):
        pay("mine", reward, [RIGHT, WRONG], np.random.default_rng(0))


def test_a_reward_of_ones_own_is_one_function_or_one_group_reward(tmp_path) -> None:
    (tmp_path / "mine.py").write_text(
        "from rlvr.rewards import Majority\n"
        "def brief(completion, generator):\n    return None if not completion.finished else 1 / completion.tokens\n"
        "crowd = Majority()\nnumber = 3\n"
    )
    own = load_reward(f"{tmp_path}/mine.py:brief")
    assert np.isnan(pay("brief", own, [RIGHT, CUT], np.random.default_rng(0))).tolist() == [False, True]
    assert load_reward(f"{tmp_path}/mine.py:crowd") == Majority()
    for name in ("number", "nothing"):
        with pytest.raises(ValueError, match=f"no function '{name}'"):
            load_reward(f"{tmp_path}/mine.py:{name}")
