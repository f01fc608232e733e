"""Text tasks for language models: what they pose, what counts as right, and how they are named."""

import importlib.util
import itertools
import json
import operator
import os
from collections import Counter
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr.cli import main
from rlvr.lab.recipe import Recipe
from rlvr.rewards import Completion, gym_score, lenient
from rlvr.rng import generator
from rlvr.tasks import Arithmetic, Countdown, Game24, MissingTasks, Questions, check_task, load_task
from rlvr.tasks.expressions import last_expression, read_expression, solve
from rlvr.tasks.grading import Grader, require
from rlvr.types import Problem, Verdict

needs_gym = pytest.mark.skipif(
    importlib.util.find_spec("reasoning_gym") is None,
    reason="reasoning-gym is not installed: pip install 'rlvr[tasks]'",
)
RNG = np.random.default_rng
FUZZ = settings(max_examples=150, deadline=None, derandomize=True, database=None)


# ── Expressions ──────────────────────────────────────────────────────────────────────────────────


OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
TREES = st.recursive(st.integers(0, 99), lambda child: st.tuples(child, st.sampled_from("+-*/"), child), max_leaves=6)


def written(tree):
    return str(tree) if isinstance(tree, int) else f"({written(tree[0])} {tree[1]} {written(tree[2])})"


def worth(tree):
    return Fraction(tree) if isinstance(tree, int) else OPERATIONS[tree[1]](worth(tree[0]), worth(tree[2]))


def leaves(tree):
    return (tree,) if isinstance(tree, int) else leaves(tree[0]) + leaves(tree[2])


@FUZZ
@given(TREES)
def test_an_expression_is_worth_what_its_tree_is(tree):
    try:
        expected = (worth(tree), leaves(tree))
    except ZeroDivisionError:
        expected = None
    assert read_expression(written(tree)) == expected


@FUZZ
@given(st.text(alphabet="0123456789+-*/().^! =$\\%_xe", max_size=12))
def test_no_text_makes_the_reader_raise(text):
    made = read_expression(text)
    assert made is None or (isinstance(made.value, Fraction) and set(text) <= set("0123456789+-*/() $"))
    last_expression(text)


def solvable_slowly(numbers, goal):
    """Whether some tree over some order of the numbers has the goal's value: both shapes of trees over four leaves and more."""
    if len(numbers) == 1:
        return numbers[0] == goal
    for i, j in itertools.permutations(range(len(numbers)), 2):
        rest = [number for place, number in enumerate(numbers) if place not in (i, j)]
        for operation in OPERATIONS.values():
            if operation is operator.truediv and numbers[j] == 0:
                continue
            if solvable_slowly([*rest, operation(numbers[i], numbers[j])], goal):
                return True
    return False


def test_solve_finds_a_solution_where_there_is_one():
    draw = RNG(0)
    hands = [[int(n) for n in draw.integers(1, 14, 4)] for _ in range(60)]
    outcomes = Counter()
    for hand in hands:
        solution = solve(hand, 24)
        assert (solution is not None) == solvable_slowly([Fraction(n) for n in hand], 24), hand
        outcomes[solution is not None] += 1
        if solution is not None:
            made = read_expression(solution)
            assert made.value == 24 and Counter(made.numbers) == Counter(hand), (hand, solution)
    assert min(outcomes.values()) >= 5


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("(8-4)*6", "(8-4)*6"),
        ("I think 3 + 4.\nNo: (8 - 4) * 6 = 24.", "(8 - 4) * 6 = 24"),
        ("**(9 - 2) * 3**", "(9 - 2) * 3"),
        ("so 8 \\times 3 works", "8 * 3"),
        ("6*4*1*1 = 24. Done", "6*4*1*1 = 24"),
        ("nothing here, but 24", None),
        ("2**3", "2**3"),
        ("Abs(3*8)", None),
        ("(3*8)+x-x", None),
        ("(3*8) + x - x", None),
        ("3*80x", None),
        ("3*8 (I am sure)", "3*8"),
        ("-(3-8)*5", "-(3-8)*5"),
    ],
)
def test_the_last_expression_of_a_text(text, last):
    assert last_expression(text) == last


# ── Arithmetic ───────────────────────────────────────────────────────────────────────────────────

VARIANTS = [
    *(Arithmetic(kind) for kind in ("sum", "difference", "product", "largest", "letters")),
    *(Arithmetic(form=form, grading="lenient") for form in ("tags", "boxed", "hashes")),
    Countdown(),
    Countdown(form="bare", grading="lenient"),
    Game24(),
    Game24(faces="rank", form="boxed"),
]


@pytest.mark.parametrize(
    "task", VARIANTS, ids=lambda t: "-".join(str(getattr(t, k, "")) for k in ("name", "kind", "form"))
)
def test_every_text_task_keeps_the_contract(task):
    check_task(task, count=60)


def test_the_answers_of_arithmetic_are_true():
    """Read off the prompt again."""
    for i in range(40):
        numbers = {}
        for kind, answer in (
            ("sum", sum),
            ("largest", max),
            ("product", lambda ns: int(np.prod(ns))),
            ("difference", lambda ns: ns[0] - sum(ns[1:])),
        ):
            problem = Arithmetic(kind).problem(RNG(i), digits=(1, 3), terms=(2, 4))
            asked = problem.prompt.split("?")[0]
            numbers[kind] = [int(part) for part in "".join(c if c.isdigit() else " " for c in asked).split()]
            assert problem.answer == str(answer(numbers[kind]))
        letters = Arithmetic("letters").problem(RNG(i)).prompt.split('"')
        assert str(letters[3].count(letters[1])) == Arithmetic("letters").problem(RNG(i)).answer


def test_difficulty_is_what_was_asked_for():
    problem = Arithmetic("sum").problem(RNG(0), digits=5, terms=3)
    assert [len(part) for part in problem.prompt.removeprefix("What is ").split("?")[0].split(" + ")] == [5, 5, 5]
    small = [
        Arithmetic("sum").problem(RNG(i), below=20).prompt.split("?")[0].removeprefix("What is ") for i in range(50)
    ]
    assert {int(n) for text in small for n in text.split(" + ")} == set(range(1, 21))
    assert len({Arithmetic("letters").problem(RNG(i)).answer for i in range(50)}) == 3
    for wrong in ({"digits": 0}, {"terms": 1}, {"below": 0}, {"digits": "two"}):
        with pytest.raises(ValueError, match="arithmetic: "):
            Arithmetic("sum").problem(RNG(0), **wrong)


@pytest.mark.parametrize(
    ("text", "strict", "loose"),
    [
        ("47", "correct", "correct"),
        (" 47\n", "correct", "correct"),
        ("47.0", "correct", "correct"),
        ("12 + 35 = 47", "form", "correct"),
        ("The answer is 47.", "form", "correct"),
        (r"\boxed{47}", "form", "correct"),
        ("47 or 48", "wrong", "wrong"),
        ("What is 12 + 35? Reply with the answer only.", "unparsed", "unparsed"),
        ("12 + 35", "unparsed", "unparsed"),
        ("about 4.7", "wrong", "wrong"),
        ("", "unparsed", "unparsed"),
        ("48", "wrong", "wrong"),
    ],
)
def test_form_and_correctness_are_told_apart(text, strict, loose):
    problem = Problem("What is 12 + 35? Reply with the answer only.", "47")
    assert Arithmetic().verify(problem, text).kind == strict
    assert Arithmetic(grading="lenient").verify(problem, text).kind == loose
    paid = lenient(Completion(problem, text, Arithmetic().verify(problem, text), True), RNG(0))
    assert paid == float(loose == "correct")


def test_the_lenient_reward_is_missing_where_the_grader_failed():
    assert lenient(Completion(Problem("?", "1"), "1", Verdict(False, "error"), True), RNG(0)) is None


# ── Puzzles ──────────────────────────────────────────────────────────────────────────────────────


def test_the_faces_are_worth_what_the_rule_says():
    worth = {}
    for faces in ("ten", "rank"):
        found = set()
        for i in range(60):
            problem = Game24(faces=faces).problem(RNG(i), card=(1, 13))
            shown = problem.prompt.split("the cards ")[1].split(" (")[0].split(", ")
            found |= set(zip(shown, problem.meta["numbers"], strict=True))
            assert ("J, Q and K count as 10)" in problem.prompt) == (faces == "ten")
        worth[faces] = dict(found)
        assert len(worth[faces]) == len(found)  # one worth a card
    assert [worth["ten"][card] for card in "JQK"] == [10, 10, 10]
    assert [worth["rank"][card] for card in "JQK"] == [11, 12, 13]
    assert worth["ten"]["A"] == worth["rank"]["A"] == 1
    with pytest.raises(ValueError, match=r"no hand with card = \(10, 13\) makes 24"):
        Game24().problem(RNG(0), card=(10, 13))


def test_a_countdown_has_the_numbers_and_target_that_were_asked_for():
    for i in range(60):
        problem = Countdown().problem(RNG(i), numbers=(3, 5), value=(2, 20), highest=60)
        numbers, solution = problem.meta["numbers"], read_expression(problem.meta["solution"])
        assert 3 <= len(numbers) <= 5 and all(2 <= n <= 20 for n in numbers)
        assert solution.value == problem.meta["target"] <= 60 and Counter(solution.numbers) == Counter(numbers)
        assert all(str(n) in problem.prompt for n in (*numbers, problem.meta["target"]))


def test_a_wrong_use_of_numbers_never_votes_for_the_target():
    problem = Problem("...", "24", {"numbers": (4, 6, 1, 1), "target": 24})
    verdict = Game24(form="bare").verify(problem, "6*4")
    assert not verdict.correct and verdict.answer == "6*4"
    assert Game24(form="bare").verify(problem, "6*4*1*1").answer == "24"


# ── Files ────────────────────────────────────────────────────────────────────────────────────────

ROWS = [
    {"question": "Half of 3?", "answer": "Three halves.\n#### 1.5", "level": 1},
    {"question": "Expand (x+1)^2.", "answer": "It is \\boxed{x^2+2x+1}", "level": 2},
    {"question": "Expand (x+1)^2.", "answer": "It is \\boxed{x^2+2x+1}", "level": 2},
    {"question": "Which day?", "answer": "Tuesday", "level": 1},
]


@pytest.fixture(params=["jsonl", "parquet"])
def path(request, tmp_path):
    made = tmp_path / f"some (new) questions.{request.param}"
    if request.param == "jsonl":
        made.write_text("\ufeff" + "\n\n".join(map(json.dumps, ROWS)), encoding="utf-8")
    else:
        pq.write_table(pa.Table.from_pylist(ROWS), made)
    return made


def test_a_file_of_questions(path):
    task = load_task(f"file:{path}")
    problems = {task.problem(generator(i)).answer: task.problem(generator(i)) for i in range(40)}
    assert set(problems) == {"1.5", "x^2+2x+1", "Tuesday"}
    assert problems["1.5"].prompt == "Half of 3?\nWrite the final answer in \\boxed{}."
    assert task.verify(problems["1.5"], r"\boxed{\frac{3}{2}}").kind == "correct"
    assert task.verify(problems["1.5"], "It is 3/2.").kind == "form"
    assert task.verify(problems["1.5"], "3").kind == "wrong"
    assert task.verify(problems["Tuesday"], r"\boxed{\text{tuesday}}").kind == "correct"
    bare = load_task(f"file:{path}(form='bare', ask=False, prompt='question', max_new_tokens=9)")
    assert bare.problem(generator(0), rows=0).prompt == "Half of 3?" and bare.limit(problems["1.5"]) == 9


def test_a_wrong_file_or_column_is_one_clear_line(path, tmp_path):
    for name, message in (
        (
            f"file:{path}(answer='solution')",
            "no column solution; accepted: answer=NAME with one of question, answer, level",
        ),
        (f"file:{tmp_path / 'nothing.jsonl'}", "there is no such file"),
        (f"file:{path}(percent='both')", "percent = 'both'; accepted: strict, ratio, points"),
        (f"file:{path}(colour=1)", r"\['colour'\]; accepted: prompt, answer, form"),
    ):
        with pytest.raises(ValueError, match=message):
            load_task(name)
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"question": "1?", "answer": "1"}\n{"question"')
    with pytest.raises(ValueError, match="line 2 is not JSON"):
        load_task(f"file:{broken}")
    with pytest.raises(ValueError, match=r"rows = \(0, 9\); accepted: a range within 0..2"):
        load_task(f"file:{path}").problem(generator(0), rows=(0, 9))


def test_a_missing_package_is_one_line_with_the_command():
    with pytest.raises(MissingTasks, match=r"no-such-thing is not installed; `pip install 'rlvr\[tasks\]'`"):
        require("no_such_thing")


# ── Names ────────────────────────────────────────────────────────────────────────────────────────


def test_a_name_carries_settings():
    task = load_task("arithmetic(kind='largest', grading='lenient', max_new_tokens=8)")
    assert (task.kind, task.grading, task.limit(Problem("", ""))) == ("largest", "lenient", 8)
    assert load_task("pointer(slack=7)").slack == 7
    for name, message in (
        ("arithmetics", "task 'arithmetics' is unknown; accepted: pointer, "),
        ("arithmetic(", "unknown"),
        ("arithmetic(kind=__import__('os'))", "can't be read"),
        ("arithmetic('sum')", "a setting without its name"),
        ("arithmetic(eos='$')", r"\['eos'\]; accepted: kind, form"),
        ("arithmetic(kind='cube')", "kind = 'cube'; accepted: sum"),
    ):
        with pytest.raises(ValueError, match=message):
            load_task(name)


def test_a_recipe_takes_a_task_with_settings_and_says_that_it_needs_a_language_model(capsys):
    name = "arithmetic(kind='sum')"
    with pytest.raises(ValueError, match="a language model for the text task"):
        Recipe(task=name, base=None)
    assert main(["train", "grpo", "--task", name, "--steps", "1"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "a language model for the text task" in err
    recipe = Recipe(task=name, base=None, model="some/model", rewards={"lenient": 1.0}, difficulty={"digits": 3})
    assert Recipe.from_json(recipe.to_json()).the_task == Arithmetic("sum")
    with pytest.raises(ValueError, match="gym_score for a task of reasoning-gym"):
        Recipe(task="echo", base=None, rewards={"gym_score": 1.0})


# ── Workers ──────────────────────────────────────────────────────────────────────────────────────


def test_a_worker_that_died_or_was_killed_is_replaced():
    with Grader(seconds=5.0) as grader:
        assert grader.load("json").kind == "ready"
        grader._process.kill()
        grader._process.wait()
        assert grader.load("json").kind == "ready"
        assert grader.grade("nonsense").kind == "error"
        assert grader.load("no_such_module").kind == "error"
        assert grader.load("json").kind == "ready"


def test_a_fork_starts_a_worker_of_its_own():
    with Grader(seconds=5.0) as grader:
        grader.load("json")
        ours = grader._process.pid
        grader._owner += 1  # what a forked child sees: a worker that isn't its own
        assert grader.load("json").kind == "ready" and grader._process.pid != ours
        os.kill(ours, 9)
        os.waitpid(ours, 0)


# ── reasoning-gym ────────────────────────────────────────────────────────────────────────────────


@needs_gym
@pytest.mark.parametrize(
    "name", ["chain_sum", "countdown", "puzzle24", "word_ladder", "game_of_life_halting", "spell_backward"]
)
def test_a_gym_task_keeps_the_contract(name):
    task = load_task(f"gym:{name}(max_new_tokens=64)")
    for i in range(4):
        problem = task.problem(generator(i))
        assert problem == task.problem(generator(i))
        verdict = task.verify(problem, f"Let me see. {task.gold(problem)}")
        assert verdict == Verdict(True, "correct", problem.answer)
        assert gym_score(Completion(problem, task.gold(problem), verdict, True), RNG(0)) == 1.0
        for text in ("", "\x00", "0" * 40, problem.prompt):
            assert not task.verify(problem, text).correct
        loose = task.verify(problem, task.gold(problem).removeprefix("<answer>").removesuffix("</answer>"))
        assert loose.kind == "form"


@needs_gym
def test_gym_difficulties_are_its_own_and_wrong_ones_are_refused():
    task = load_task("gym:chain_sum(min_terms=2, max_terms=2)")
    assert task.problem(generator(0), min_digits=1, max_digits=1).prompt.count(" + ") <= 2
    with pytest.raises(ValueError, match="unknown difficulty 'digits'; accepted: min_terms, max_terms"):
        task.problem(generator(0), digits=2)
    with pytest.raises(ValueError, match="task gym:nonsense is unknown; accepted: ab, "):
        load_task("gym:nonsense")
    with pytest.raises(ValueError, match="there is no answer to demonstrate"):
        graph = load_task("gym:graph_color")
        graph.gold(graph.problem(generator(0)))


@needs_gym
def test_a_gym_problem_repeats_in_another_process_with_another_hash_seed(monkeypatch):
    """Some of its data sets draw from sets, whose order belongs to the process."""
    answers = set()
    for seed in ("1", "2", "3"):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        with Grader() as grader:
            item = {"name": "polynomial_multiplication", "config": {}, "number": 5}
            answers.add(grader.grade("gym_entry", "reasoning_gym", 60.0, **item).data["answer"])
    assert len(answers) == 1


def test_the_score_of_another_task_is_missing():
    assert gym_score(Completion(Problem("?", "1"), "1", Verdict(True, "correct"), True), RNG(0)) is None


def test_a_task_name_makes_a_folder_name():
    from rlvr.cli.words import file_name

    assert file_name("arithmetic(kind='sum')") == "arithmetic-kind-sum"
    assert file_name("file:some/where/gsm8k.jsonl(answer='x')") == "gsm8k"
    assert file_name("gym:puzzle24") == "gym-puzzle24" and file_name("pointer") == "pointer"


def test_questions_ask_math_verify_only_beyond_numbers(path, monkeypatch):
    task = Questions(str(path))
    monkeypatch.setattr("rlvr.tasks.questions.require", lambda module: (_ for _ in ()).throw(MissingTasks(module)))
    assert task.verify(Problem("?", "12"), r"\boxed{12}").correct
    with pytest.raises(MissingTasks):
        task.verify(Problem("?", "x+1"), r"\boxed{1+x}")
