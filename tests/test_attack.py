"""`rlvr attack` finds the holes that are there and none that aren't."""

import ast
import importlib.util
import json
import operator
import re
from dataclasses import replace

import pytest

from rlvr.cli import main
from rlvr.tasks import Arithmetic, Countdown, Game24, Pointer, load_task
from rlvr.tasks.attack import attack, targets_of
from rlvr.tasks.expressions import read_expression
from rlvr.types import Verdict

needs_gym = pytest.mark.skipif(
    importlib.util.find_spec("reasoning_gym") is None,
    reason="reasoning-gym is not installed: pip install 'rlvr[tasks]'",
)


def holes(judge, targets, loose=False):
    return {finding.family for finding in attack(judge, targets, loose) if finding.hole}


def verdict_of(task):
    return lambda problem, text: float(task.verify(problem, text).correct)


@pytest.mark.parametrize(
    "name",
    [
        "pointer",
        "bilingual",
        "echo",
        "arithmetic",
        "arithmetic(kind='largest', grading='lenient')",
        "arithmetic(kind='letters', form='boxed')",
        "arithmetic(kind='difference', form='hashes', grading='lenient')",
        "countdown",
        "countdown(form='bare', grading='lenient')",
        "game24(faces='rank')",
    ],
)
def test_our_own_verifiers_have_none_of_these_holes(name):
    task = load_task(name)
    targets = targets_of(task, 12)
    found = attack(verdict_of(task), targets, getattr(task, "grading", "") == "lenient")
    assert [(f.family, f.text) for f in found if f.hole] == []
    tried = {f.family: f.tried for f in found}
    assert (
        min(tried[family] for family in ("right answer", "constants", "empty", "garbage", "hedges", "huge powers")) > 0
    )
    if hasattr(task, "faces") or task.name == "countdown":
        assert tried["other numbers"] > 0 and tried["illegal arithmetic"] > 0


ARITHMETIC = Arithmetic(form="boxed")


def contains(problem, text):
    return float(problem.answer in text)


def first_number(problem, text):
    return float("".join(c if c.isdigit() else " " for c in text).split()[:1] == [problem.answer])


def any_line(problem, text):
    return float(problem.answer in text.replace(",", " ").split() or text == ARITHMETIC.gold(problem))


def strictest(problem, text):
    return float(text == ARITHMETIC.gold(problem))


def generous(problem, text):
    return 1.0


def embedded(problem, text):
    return float(problem.answer in "".join(c if c.isdigit() else " " for c in text).split()[:1])


@pytest.mark.parametrize(
    ("judge", "expected"),
    [
        (contains, {"all answers at once", "hedges", "repeated answers", "numbers nearby"}),
        (any_line, {"all answers at once", "hedges"}),
        (embedded, {"numbers nearby"}),
        (first_number, {"numbers nearby"}),
        (strictest, {"right answer"}),
        (generous, {"constants", "empty", "garbage", "prompt copied", "hedges", "repeated answers", "huge powers"}),
    ],
)
def test_a_verifier_with_a_hole_is_found_out(judge, expected):
    assert expected <= holes(judge, targets_of(ARITHMETIC, 12))


def test_only_the_holes_that_are_there_are_reported():
    targets = targets_of(ARITHMETIC, 12)
    assert holes(strictest, targets) == {"right answer"}
    assert holes(verdict_of(replace(ARITHMETIC, grading="lenient")), targets, loose=True) == set()


def loose_puzzle(problem, text):
    """What reasoning-gym's puzzle24 does: four numbers of a range, and a value that rounds down to the target."""
    made = read_expression(text)
    target = problem.meta["target"]
    return float(made is not None and len(made.numbers) == 4 and max(made.numbers) <= 13 and int(made.value) == target)


def test_a_puzzle_that_never_looks_at_its_numbers_is_found_out():
    found = {f.family: f for f in attack(loose_puzzle, targets_of(Game24(form="bare"), 12))}
    assert found["constants"].hole and found["constants"].rate == 1.0
    assert found["other numbers"].hole and not found["empty"].hole


def power(base, exponent):
    """A power as far as a machine can have it within a test."""
    if abs(exponent) > 99 or abs(base) > 1e9:
        raise OverflowError
    return base**exponent


OPERATIONS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: power,
}


def worth(node):
    if isinstance(node, ast.Constant):
        return node.value
    return OPERATIONS[type(node.op)](worth(node.left), worth(node.right))


def pays_powers(problem, text):
    """What reasoning-gym's countdown does: its own numbers, and whatever operation leads to the target."""
    try:
        value = worth(ast.parse(text.split("=")[0].strip(), mode="eval").body)
        return float(
            re.findall(r"\d+", text) == [] or (own(problem, text) and abs(value - problem.meta["target"]) < 1e-9)
        )
    except (SyntaxError, ValueError, KeyError, AttributeError, TypeError, ArithmeticError, MemoryError):
        return 0.0


def own(problem, text):
    return sorted(map(int, re.findall(r"\d+", text))) == sorted(problem.meta["numbers"])


def test_a_puzzle_that_pays_powers_and_decimals_is_found_out():
    targets = targets_of(Countdown(form="bare"), 24, value=(1, 9), numbers=3, highest=40)
    found = {f.family: f for f in attack(pays_powers, targets)}
    assert found["illegal arithmetic"].hole and re.search(r"\*\*|\.", found["illegal arithmetic"].text)
    assert not found["other numbers"].hole and not found["empty"].hole


def test_a_constant_counts_only_where_it_isnt_right():
    """A bar and a letter is right for some pointer problems: that is luck, not a hole."""
    task = Pointer()
    found = {f.family: f for f in attack(verdict_of(task), targets_of(task, 40, n=4, k=1))}
    assert not found["constants"].hole

    assert holes(lambda problem, text: float(problem.answer in text), targets_of(task, 12)) >= {
        "hedges",
        "repeated answers",
    }


# ── The command ──────────────────────────────────────────────────────────────────────────────────


def test_the_command_says_fine_with_exit_code_0(capsys):
    assert main(["attack", "arithmetic(kind='sum')", "--problems", "6"]) == 0
    out = capsys.readouterr().out
    assert "No hole found" in out and "HOLE" not in out and "numbers nearby" in out


def test_the_command_says_hole_with_exit_code_1_and_shows_the_text(capsys, tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(
        "def pays(completion, generator):\n    return float(completion.problem.answer in completion.text)\n"
    )
    assert main(["attack", "arithmetic", "--problems", "6", "--reward", f"{mine}:pays"]) == 1
    out = capsys.readouterr().out
    assert "HOLE" in out and "hedges: paid '" in out and "for 'What is " in out


def test_the_command_attacks_a_file_of_questions(capsys, tmp_path):
    path = tmp_path / "questions.jsonl"
    path.write_text(
        "\n".join(json.dumps({"question": f"What is {i} + {i}?", "answer": f"#### {2 * i}"}) for i in range(20, 40))
    )
    assert main(["attack", f"file:{path}", "--problems", "6", "--reward", "correct", "lenient"]) == 0
    assert capsys.readouterr().out.count("No hole found") == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pointr"], "task 'pointr' is unknown; accepted: pointer"),
        (["pointer", "--problems", "1"], "--problems 1: accepted are whole numbers from 2"),
        (["pointer", "--reward", "majority"], "--reward majority: accepted are rewards of one completion"),
        (["pointer", "--difficulty", "n=99"], "pointer: n = 99"),
    ],
)
def test_a_mistake_is_one_line_with_exit_code_2(arguments, message, capsys):
    assert main(["attack", *arguments]) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1


@needs_gym
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("puzzle24", {"constants", "other numbers", "illegal arithmetic"}),
        ("countdown", {"illegal arithmetic"}),
        ("game_of_life_halting", {"constants", "garbage", "prompt copied", "hedges"}),
        ("complex_arithmetic", {"garbage"}),
        ("coin_flip", {"constants"}),
        ("gsm_symbolic", {"numbers nearby"}),
        ("fraction_simplification", {"numbers nearby"}),
        ("time_intervals", {"numbers nearby"}),
        ("sokoban", {"all answers at once", "hedges"}),
    ],
)
def test_the_known_holes_of_reasoning_gym_are_found_and_our_verdict_has_none(name, expected, monkeypatch):
    from rlvr.tasks import attack_texts
    from rlvr.tasks.gym import own_score

    # What takes the scorer to its time limit is left to the command.
    monkeypatch.setattr(attack_texts, "HUGE", ("9" * 50,))
    task = load_task(f"gym:{name}")
    targets = targets_of(task, 6)
    assert expected <= holes(lambda problem, text: own_score(problem, text).score, targets)
    assert holes(verdict_of(task), targets) == set()


def test_a_verifier_that_pays_in_part_is_measured_by_its_gold():
    """A reward whose best is a half is still paid in full there."""
    task = Arithmetic()
    half = attack(lambda problem, text: 0.5 * (problem.answer in text), targets_of(task, 6))
    assert {f.family for f in half if f.hole} >= {"hedges", "right answer"}
    assert Verdict(True, "correct").answer is None


@needs_gym
def test_sokobans_verdict_takes_moves_and_nothing_else():
    task = load_task("gym:sokoban")
    for target in targets_of(task, 3):
        moves = target.problem.answer
        told = [
            task.verify(target.problem, f"<answer>{text}</answer>").correct
            for text in (moves, f"so {moves}", moves + "U")
        ]
        assert told[:2] == [True, False]
        # The walk had solved it one move before.
        assert not told[2]
