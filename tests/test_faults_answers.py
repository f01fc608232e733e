"""Faults I and J: answers that are read, compared and graded as they shouldn't be, each as an input with its right value."""

import importlib.util
import threading
import time

import numpy as np
import pytest

from rlvr.rewards import pay
from rlvr.tasks import Countdown, Questions
from rlvr.tasks.answers import boxed, gradable, read_lenient, read_strict, same
from rlvr.tasks.expressions import last_expression, read_expression
from rlvr.tasks.grading import Grader
from rlvr.tasks.questions import check_answer
from rlvr.tasks.text import Checked, judge
from rlvr.types import Problem, Verdict

needs_math = pytest.mark.skipif(
    importlib.util.find_spec("math_verify") is None, reason="math-verify is not installed: pip install 'rlvr[tasks]'"
)
needs_gym = pytest.mark.skipif(
    importlib.util.find_spec("reasoning_gym") is None,
    reason="reasoning-gym is not installed: pip install 'rlvr[tasks]'",
)


@pytest.fixture(scope="module")
def grader():
    with Grader(seconds=2.0) as made:
        yield made


def graded(grader, gold, answer):
    return grader.grade("math", "math_verify", gold=gold, answer=answer).kind


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so \boxed{12}. Check. **Final** \boxed{12}", "12"),
        (r"\boxed{2}, no wait: \boxed{3}", "3"),
        (r"\boxed 7 ... \boxed{8}", "8"),
        (r"\boxed{8} ... \boxed 7.", "7"),
        (r"\boxed{8} and \boxed{9", "8"),
    ],
)
def test_b81_the_last_box_counts_and_boxes_are_never_glued(text, answer):
    assert read_strict(text, "boxed") == answer
    assert read_lenient(text) == answer


@pytest.mark.parametrize(
    "inside", [r"\frac{3}{4}", r"\sqrt{\frac{1}{2}}", r"\text{Tuesday}", r"\{1, 2\}", r"\left\{x \mid x > 0\right\}"]
)
def test_b82_nested_braces_stay_whole(inside):
    assert boxed(rf"Thus \boxed{{{inside}}}, done.") == [inside]


def test_b82_what_the_braces_hold_is_compared():
    assert check_answer("3/4", r"\frac{3}{4}").kind == "right"
    assert same(gold="Tuesday", answer=r"\text{Tuesday}") is True


@pytest.mark.parametrize("text", [r"Thus \[ \boxed{(1,4]} \]", r"\(\boxed{(1,4]}\)", r"it is $\boxed{(1,4]}$."])
def test_b84_a_box_is_found_in_any_surrounding(text):
    assert check_answer("(1,4]", read_strict(text, "boxed")).kind == "right"


@pytest.mark.parametrize(
    ("gold", "answer", "kind"),
    [
        ("1", r"1 - \sqrt{3}", "wrong"),
        ("3", r"1 - \sqrt{3}", "wrong"),
        ("3/5", "3", "wrong"),
        ("3/5", r"\frac{3}{5}", "right"),
        ("47", "12 + 35", "wrong"),
        ("5", "5x", "wrong"),
        ("5", "5 apples", "right"),
    ],
)
def test_b85_no_number_inside_an_answer_stands_for_it(gold, answer, kind):
    assert check_answer(gold, answer).kind == kind


@pytest.mark.parametrize("text", [r"1 - \sqrt{3}", "12 + 35", "x^{3}", "so 3 + 47", "47x", "1 - 47", r"\frac{1}{47}y"])
def test_b85_running_text_falls_back_on_no_embedded_number(text):
    assert read_lenient(text, numeric=True) is None


@needs_math
@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"3 - 1/\mathrm{e}", r"3 + 1/\mathrm{e}"),
        ("2x + 3y + 9 = 0", "2x - y + 5 = 0"),
        ("x - 1", "1 - x"),
        ("x", "x, y"),
    ],
)
def test_b85_algebra_doesnt_fall_back_on_a_part_either(grader, gold, answer):
    assert graded(grader, gold, answer) == "wrong"
    assert graded(grader, gold, gold) == "right"


@needs_math
def test_b87_the_order_of_arguments_is_named_and_documented(grader):
    with pytest.raises(TypeError):
        same("1", "1")
    assert graded(grader, "0 < x < 12", "(0,12)") == "right"
    assert graded(grader, "(0,12)", "0 < x < 12") == "wrong"  # as check_answer's docstring says


def test_b87_every_answer_equals_itself():
    draw = np.random.default_rng(0)
    numbers = [f"{a}" for a in draw.integers(-1000, 1000, 20)] + [f"{a}/{b}" for a, b in draw.integers(1, 99, (15, 2))]
    answers = numbers + [f"{a}.{b}%" for a, b in draw.integers(1, 99, (10, 2))] + ["blue", "A", "$5", "1,234", "x + 1"]
    assert len(answers) == 50
    assert [a for a in answers if check_answer(a, a).kind != "right"] == []


@pytest.mark.parametrize(
    ("policy", "accepted"),
    [("strict", set()), ("ratio", {"0.35"}), ("points", {"35"})],
    ids=["strict", "ratio", "points"],
)
def test_b89_one_policy_for_percent_and_both_ways_round(policy, accepted):
    others = ["0.35", "35", "3500", "0.0035"]
    assert {o for o in others if same(gold="35%", answer=o, percent=policy)} == accepted
    assert {o for o in others if same(gold=o, answer="35%", percent=policy)} == accepted
    for spelled in ("35%", "35 percent", r"35\%", "35.0 %"):
        assert same(gold="35%", answer=spelled, percent=policy) is True


def test_b89_units_must_agree_where_both_sides_have_one():
    assert same(gold="5 cm", answer="5") is True and same(gold="5", answer="5 cm") is True
    assert same(gold="5 cm", answer="5 m") is False
    assert same(gold="18", answer="$18") is True and same(gold="90", answer=r"90^\circ") is True


def test_b90_no_window_hides_the_answer():
    for read in (read_lenient, lambda text: read_strict(text, "hashes")):
        assert read("#### 61\n" + "prose " * 67 + "in 2 parts") == "61"
    long = "+".join(f"x_{i}" for i in range(40))
    assert len(long) > 150
    assert read_strict(rf"\boxed{{{long}}}" + " and so on" * 100, "boxed") == long


def test_b91_strict_and_lenient_are_told_apart():
    problem, text = Problem("What is 9 + 9?", "18"), "The answer is 18."

    def verdict(grading):
        return judge(text, "boxed", grading, lambda answer: Checked("right" if answer == "18" else "wrong", answer))

    assert verdict("strict") == Verdict(False, "form", "18")
    assert verdict("lenient") == Verdict(True, "correct", "18")
    assert problem.answer == read_lenient(text)


def test_b95_an_answer_that_cant_be_graded_is_left_out_and_counted(tmp_path):
    path = tmp_path / "questions.jsonl"
    path.write_text(
        '{"question": "1?", "answer": "see the picture"}\n{"question": "2?", "answer": "6"}\n{"question": "3?"}\n'
    )
    task = Questions(str(path))
    assert task.excluded == 2
    assert {task.problem(np.random.default_rng(i)).answer for i in range(20)} == {"6"}
    assert gradable("6") and not gradable("see the picture")
    path.write_text('{"question": "1?", "answer": "see the picture"}\n')
    with pytest.raises(ValueError, match="none of its 1 answers can be graded"):
        Questions(str(path))


def test_b95_a_failed_grader_excludes_the_sample():
    from rlvr.rewards import Completion, correct

    group = [Completion(Problem("?", "x"), "", Verdict(False, kind), True) for kind in ("error", "timeout", "wrong")]
    paid = pay("correct", correct, group, np.random.default_rng(0))
    assert np.isnan(paid[0]) and paid[1:] == [0.0, 0.0]


@pytest.mark.parametrize("form", ["bare", "tags", "boxed", "hashes"])
def test_b96_each_form_reaches_its_own_reader(form):
    task = Questions.__new__(Questions)
    object.__setattr__(task, "form", form)
    problem = Problem("?", "17")
    assert task.verify(problem, task.gold(problem)).correct
    assert not task.verify(problem, "").correct
    assert read_strict("reasoning ... <answer>17</answer>", "tags") == "17"
    assert read_strict("<think>\na\n</think>\n<answer>\n14\n</answer>", "tags") == "14"


@pytest.mark.parametrize(
    ("text", "correct"), [("5*2", False), ("3+7", False), ("2+3+7-2", False), ("7*2-3-1", False), ("(7+3)*2", False)]
)
def test_b97_a_puzzle_takes_its_own_numbers_each_once(text, correct):
    problem = Problem("...", "10", {"numbers": (2, 3, 7), "target": 10})
    assert Countdown(form="bare").verify(problem, text).correct == correct
    assert Countdown(form="bare").verify(Problem("...", "8", {"numbers": (2, 3, 7), "target": 8}), "7+3-2").correct


@needs_gym
@pytest.mark.parametrize("name", ["number_sorting", "family_relationships", "prime_factorization"])
def test_b97_a_scorer_that_raises_pays_nothing_and_gold_pays_in_full(name):
    from rlvr.tasks import Gym
    from rlvr.tasks.gym import own_score

    task = Gym(name)
    for i in range(5):
        problem = task.problem(np.random.default_rng(i))
        assert task.verify(problem, task.gold(problem)).correct
        for garbage in ("\x00", "[[[", "None", "9" * 200):
            assert own_score(problem, garbage).score < 1 and not task.verify(problem, garbage).correct


@needs_math
def test_b98_grading_works_outside_of_the_main_thread(grader):
    found = []
    thread = threading.Thread(target=lambda: found.append(graded(grader, r"\frac{2}{7}", r"\frac{2}{7} + 0")))
    thread.start()
    thread.join(60)
    assert found == ["right"]


@needs_math
@pytest.mark.parametrize(
    ("answer", "kinds"),
    [
        ("9^{9^{9^{9}}}", ("wrong", "timeout")),
        ("10^{10^{10}}!", ("wrong", "timeout")),
        ("10^{10^{10}}", ("timeout",)),
        ("(" * 10**5 + "1" + ")" * 10**5, ("timeout",)),
    ],
    ids=["tower", "factorial", "power", "brackets"],
)
def test_b99_what_never_ends_is_ended_and_the_next_item_is_graded(answer, kinds):
    with Grader(seconds=1.0) as grader:
        grader.load("math_verify")
        started = time.process_time()
        found = grader.grade("math", "math_verify", gold="2", answer=answer)
        assert found.kind in kinds
        if answer == "10^{10^{10}}":  # ended by the processor time it took, not by a clock on a busy machine
            assert "1.0 s of processor time" in found.why
        assert time.process_time() - started < 1.0  # the work is the worker's; this process only waited
        assert graded(grader, "x+1", "1+x") == "right"


def test_b99_our_own_readers_are_bounded():
    started = time.process_time()
    for text in ("9**9**9**9", "(" * 10**5 + "1" + ")" * 10**5, "1" * 10**6, "1+" * 10**5 + "1", "9" * 10**5 + "!"):
        assert read_expression(text) is None
        assert check_answer("5", text).kind == "wrong"
        assert read_lenient(text, numeric=True) != "5"
    assert time.process_time() - started < 2
    for piece in ("\\boxed{", "**a ", "$1", "\\(1 ", "<answer>", "answer is ", "#### ", "1 + ", "Abs(", "3*8+x "):
        for read in (boxed, read_lenient, last_expression):
            read(piece * 5000)
    assert time.process_time() - started < 6
    assert read_expression("1" + "+1" * 90).value == 91 and read_expression("1" + "+1" * 150) is None


@needs_math
def test_b101_symbolic_equality_is_found(grader):
    assert graded(grader, "1+x", "x+1") == "right"
    assert graded(grader, "x^2+2x+1", "(x+1)^2") == "right"
    assert graded(grader, "x^2+2x+2", "(x+1)^2") == "wrong"


@pytest.mark.parametrize(
    "text", ["__import__('os').getcwd()", "(lambda: 24)()", "[24][0]", "24 if 1 else 0", "1_0", "0x10"]
)
def test_b102_nothing_that_a_policy_writes_is_run(text):
    assert read_expression(text) is None
    problem = Problem("...", "24", {"numbers": (24,), "target": 24})
    assert Countdown(form="bare").verify(problem, text).kind in ("unparsed", "wrong")


def test_b102_the_list_of_harmless_texts_is_read_quickly_and_holds_no_code():
    from rlvr.tasks.worker import HARMLESS

    started = time.process_time()
    for text in ("31395*x**6 - 831220*x**5", "-exp(x)*sin(2*x)/3 + C", "sqrt(4)*3.5", "factorial(4)+1", "4!"):
        assert HARMLESS.fullmatch(text)
    for text in (
        "x.y",
        "(1).real",
        "x_",
        "__import__",
        "[1]",
        "'a'",
        "open(x)",
        "lambda: 1",
        "x or y",
        "1" * 5000 + "or",
    ):
        assert not HARMLESS.fullmatch(text)
    assert time.process_time() - started < 1


@needs_gym
def test_b102_scorers_that_evaluate_get_no_code(tmp_path):
    from rlvr.tasks import Gym
    from rlvr.tasks.gym import own_score
    from rlvr.tasks.worker import EVALUATE, PARSE

    mark = tmp_path / "ran"
    code = f"open({str(mark)!r}, 'w').close()"
    for name in (*EVALUATE, *PARSE):
        problem = Gym(name).problem(np.random.default_rng(0))
        for text in (code, f"[{code}]", f"__import__('pathlib').Path({str(mark)!r}).touch()"):
            assert own_score(problem, text).score < 1
        assert not mark.exists(), f"{name} ran what a policy wrote"


@pytest.mark.parametrize("value", ["1.5", float("inf"), "nan", "-0.5"])
def test_b102_a_reward_that_is_no_finite_number_is_refused(value):
    from rlvr.rewards import Completion

    group = [Completion(Problem("?", "x"), "", Verdict(False, "wrong"), True)]
    with pytest.raises(ValueError, match="accepted: a finite number or None"):
        pay("mine", lambda completion, generator: value, group, np.random.default_rng(0))
