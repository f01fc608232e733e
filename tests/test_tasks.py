"""The worlds against a slow reader of their prompts, every failure kind by hand, and the contract that refuses a bad task."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr.lab.recipe import Recipe
from rlvr.lab.testsets import held_out, pointer_sets
from rlvr.rng import generator
from rlvr.tasks import TASKS, Echo, Pointer, check_task
from rlvr.types import Problem, Verdict

TASK = Pointer()
EXAMPLE = Problem("ca,bd,ab,dc,?a2:", "d", {"n": 4, "k": 2, "offset": 3, "orbit": "bdcabdc"})


# ── A slow reader of prompts: it knows the text and nothing else ─────────────────────────────────────


def walk(prompt: str, hops: int) -> str:
    """The letters passed in ``hops`` hops, read from the prompt's text."""
    *pairs, question = prompt.removesuffix(":").split(",")
    assert question[0] == "?" and all(len(pair) == 2 for pair in pairs)
    follows = {pair[0]: pair[1] for pair in pairs}
    letter, passed = question[1], ""
    for _ in range(hops):
        letter = follows[letter]
        passed += letter
    return passed


def hop_count(prompt: str) -> int:
    return int(prompt[prompt.index("?") + 2 : -1])


def kind_slowly(prompt: str, text: str) -> str:
    """The kinds as the lecture words them, letter by letter."""
    k, head = hop_count(prompt), text.split("|")[0]
    wanted = walk(prompt, k)
    if "|" in text and text.split("|", 1)[1][:1] == wanted[-1]:
        return "correct"
    if any(letter not in walk_letters for letter in head):
        return "format"
    if any(written != right for written, right in zip(head, wanted, strict=False)):
        return "lookup"
    if "|" not in text:
        return "no_bar" if len(head) > k else "format"
    return {-1: "undershoot", 0: "format", 1: "overshoot"}[(len(head) > k) - (len(head) < k)]


walk_letters = "abcdefghijklmnop"


def posed(count: int, **difficulty) -> list[Problem]:
    return [TASK.problem(generator(7, "tasks", i), **difficulty) for i in range(count)]


@pytest.mark.parametrize("n", range(2, 17))
def test_gold_is_what_the_prompt_says(n: int) -> None:
    for problem in posed(40, n=n, k=(1, 9)):
        k = hop_count(problem.prompt)
        chain = walk(problem.prompt, k)
        assert problem.answer == chain[-1]
        assert TASK.gold(problem) == f"{chain}|{chain[-1]}$"
        assert TASK.direct(problem) == f"|{chain[-1]}$"
        assert problem.meta["orbit"] == walk(problem.prompt, k + TASK.slack)
        assert (problem.meta["n"], problem.meta["k"]) == (n, k)
        assert TASK.limit(problem) == k + 5


@pytest.mark.parametrize("n", [2, 5, 16])
def test_the_mapping_is_one_cycle_over_n_distinct_letters(n: int) -> None:
    for problem in posed(40, n=n, k=1):
        start = problem.prompt[problem.prompt.index("?") + 1]
        lap = walk(problem.prompt, n)
        assert len(set(lap)) == n and lap[-1] == start
        assert problem.prompt.count(",") == n


def test_pairs_stand_in_random_order_and_every_letter_begins_sometimes() -> None:
    prompts = [problem.prompt for problem in posed(400, n=5, k=3)]
    begins = Counter(prompt[prompt.index("?") + 1] for prompt in prompts)
    assert set(begins) == set(walk_letters)
    # Place of the asked pair among the five: uniform, 80 expected, a spread of 8 a place.
    places = Counter([pair[0] for pair in p.split(",")[:5]].index(p[p.index("?") + 1]) for p in prompts)
    assert all(40 < places[place] < 120 for place in range(5))
    # A pair that goes on where the one before it ends: one in four, 400 of the 1600 neighbours, a spread of 17.
    chained = sum(first[1] == then[0] for p in prompts for first, then in itertools.pairwise(p.split(",")[:5]))
    assert 320 < chained < 480


def test_answers_are_balanced_over_places() -> None:
    """A guess at the letter of one place of the prompt is right no more often than chance."""
    problems = posed(1000, n=4, k=2)
    for place in (0, 1, 3, 4, 6, 7, 9, 10):
        hits = sum(problem.prompt[place] == problem.answer for problem in problems)
        assert abs(hits - 250) < 70  # five standard deviations


def test_difficulty_ranges_are_inclusive_and_used_up() -> None:
    problems = posed(400, n=(4, 8), k=(1, 7))
    assert Counter(problem.meta["n"] for problem in problems).keys() == set(range(4, 9))
    assert Counter(problem.meta["k"] for problem in problems).keys() == set(range(1, 8))


def test_offsets_are_whole_numbers_from_0_to_the_bound() -> None:
    counts = Counter(problem.meta["offset"] for problem in posed(100 * (TASK.max_offset + 1), n=3))
    assert set(counts) == set(range(TASK.max_offset + 1))
    assert all(60 < count < 140 for count in counts.values())  # 100 expected, with a spread of 10
    still = Pointer(max_offset=0)
    assert {still.problem(generator(0, i)).meta["offset"] for i in range(20)} == {0}


@pytest.mark.parametrize(
    "difficulty",
    [
        {"n": 1},
        {"n": 17},
        {"n": (8, 4)},
        {"n": (4, 17)},
        {"n": 4.5},
        {"n": "4"},
        {"n": True},
        {"n": None},
        {"n": (4,)},
        {"n": (4, 5, 6)},
        {"k": 0},
        {"k": 10},
        {"k": (1, 2.5)},
        {"k": (0, 3)},
    ],
    ids=str,
)
def test_difficulties_out_of_range_are_refused_with_name_value_and_range(difficulty: dict) -> None:
    ((name, value),) = difficulty.items()
    with pytest.raises(ValueError, match="whole numbers or ranges within") as error:
        TASK.problem(np.random.default_rng(0), **difficulty)
    assert f"{name} = {value!r}" in str(error.value)


def test_unknown_difficulties_are_refused_by_the_recipe() -> None:
    with pytest.raises(ValueError, match="letters"):
        Recipe(difficulty={"letters": 4})
    with pytest.raises(ValueError, match="task echo"):
        Recipe(task="echo", base=None, difficulty={"n": 4})


def test_demonstrations_without_a_chain_are_as_many_as_asked_and_change_nothing_else() -> None:
    always, never, mixed = (
        [TASK.problem(generator(7, "chains", i), n=(4, 8), k=(1, 7), chains=share) for i in range(2000)]
        for share in (1.0, 0.0, 0.3)
    )
    assert [(problem.prompt, problem.answer) for problem in always] == [(p.prompt, p.answer) for p in mixed]
    assert not any("direct" in problem.meta for problem in always)
    assert [TASK.gold(problem) for problem in never] == [TASK.direct(problem) for problem in always]
    shown = [TASK.gold(problem) != TASK.direct(problem) for problem in mixed]
    assert abs(sum(shown) - 600) < 82  # four standard deviations
    assert all(TASK.gold(p) == TASK.gold(a) for p, a, chain in zip(mixed, always, shown, strict=True) if chain)
    # A hint is drawn before, so a world with both holds the hinted problems of the world with hints alone.
    hinted = [TASK.problem(generator(7, "chains", i), n=(4, 8), k=(1, 7), hint=0.5) for i in range(50)]
    both = [TASK.problem(generator(7, "chains", i), n=(4, 8), k=(1, 7), hint=0.5, chains=0.5) for i in range(50)]
    assert [problem.prompt for problem in hinted] == [problem.prompt for problem in both]
    check_task(TASK, count=50, n=(4, 8), k=(1, 7), chains=0.5)


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan")])
def test_a_share_of_chains_is_a_probability(share: float) -> None:
    with pytest.raises(ValueError, match=r"chains = .*0 to 1"):
        TASK.problem(np.random.default_rng(0), chains=share)


# ── Verdicts ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "kind", "answer"),
    [
        ("bd|d$", "correct", "d"),  # the demonstration
        ("|d$", "correct", "d"),  # no chain at all: the verdict reads the answer only
        ("bdcabdc|d", "correct", "d"),  # right by luck after running on
        ("xx??|d", "correct", "d"),  # whatever stands before
        ("bd|d|a$", "correct", "d"),  # the first bar counts
        ("bd|dd", "correct", "d"),  # the first character after it
        ("bd|d", "correct", "d"),  # no end sign
        ("cd|d$", "correct", "d"),  # a wrong hop, the right answer
        ("bd|c$", "format", "c"),  # right hops, right bar, another letter
        ("bd|$", "format", None),  # no answer
        ("bd|", "format", None),
        ("bd||d$", "format", None),  # a bar is no letter
        ("bd|3$", "format", None),
        ("bd", "format", None),  # ended by the limit without going on
        ("bd$", "format", None),  # ended without a bar
        ("bdc$", "format", None),
        ("bdcabdc$", "format", None),
        ("", "format", None),
        ("$", "format", None),
        ("b,|a$", "format", "a"),
        ("bdcabdc", "no_bar", None),  # ran into the limit
        ("bdc", "no_bar", None),
        ("bdxyz", "format", None),  # not letters of the world
        ("bdc|c$", "overshoot", "c"),
        ("bdca|a$", "overshoot", "a"),
        ("bdc|$", "overshoot", None),
        ("b|b$", "undershoot", "b"),
        ("|a$", "undershoot", "a"),
        ("|", "undershoot", None),
        ("a|a$", "lookup", "a"),  # the first hop is wrong
        ("bc|c$", "lookup", "c"),  # the second
        ("bcabdca", "lookup", None),
        ("ba", "lookup", None),
    ],
)
def test_every_kind_by_hand(text: str, kind: str, answer: str | None) -> None:
    assert TASK.verify(EXAMPLE, text) == Verdict(kind == "correct", kind, answer)


def test_the_hand_made_cases_show_every_kind() -> None:
    cases = test_every_kind_by_hand.pytestmark[0].args[1]
    assert {kind for _, kind, _ in cases} == {"correct", *TASK.kinds}
    assert set(TASK.stopping) < set(TASK.kinds)


WRITTEN = st.text(alphabet="abcd|$,:2x", max_size=8)
PREFIXES = st.tuples(st.integers(0, 7), WRITTEN).map(lambda pair: EXAMPLE.meta["orbit"][: pair[0]] + pair[1])
ANY_TEXT = st.text(alphabet=st.characters(max_codepoint=0x3000), max_size=20)
FUZZ = settings(max_examples=150, deadline=None, derandomize=True, database=None)


@FUZZ
@given(st.one_of(WRITTEN, PREFIXES))
def test_kinds_agree_with_the_slow_reader(text: str) -> None:
    text = text[: TASK.limit(EXAMPLE)]  # what a policy can write
    verdict = TASK.verify(EXAMPLE, text)
    assert verdict.kind == kind_slowly(EXAMPLE.prompt, text)
    assert verdict.correct == (verdict.kind == "correct")


@FUZZ
@given(st.sampled_from(sorted(TASKS)), st.integers(0, 50), ANY_TEXT)
def test_verify_judges_any_text(name: str, index: int, text: str) -> None:
    task = TASKS[name]
    verdict = task.verify(task.problem(generator(index, "fuzz")), text)
    assert verdict.kind in ("correct", *task.kinds)
    assert verdict.correct == (verdict.kind == "correct")
    if verdict.answer is not None and task.alphabet is not None:
        assert len(verdict.answer) == 1 and verdict.answer in task.alphabet


@pytest.mark.parametrize(
    ("text", "thinks", "needed", "over_run", "tail"),
    [
        ("bd|d$", 1, 2, 0, 0),
        ("bd|d", 1, 2, 0, 0),
        ("|d$", 0, 0, 0, 0),
        ("b|b$", 1, 1, 0, 0),
        ("bdcabdc", 1, 2, 5, 0),
        ("bdca|a$", 1, 2, 2, 0),
        ("bd|d|d|d", 1, 2, 0, 4),
        ("|d|d$", 0, 0, 0, 3),
        ("bd|dd$", 1, 2, 0, 2),  # only an end sign right after the answer is due
        ("bd|", 1, 2, 0, 0),
        ("bd||d$", 1, 2, 0, 2),  # the bar stands in the answer's place
        (",bd|d$", 0, 2, 0, 0),
        ("$", 0, 0, 0, 0),
        ("", 0, 0, 0, 0),
    ],
)
def test_what_a_text_is_made_of(text: str, thinks: float, needed: float, over_run: float, tail: float) -> None:
    wanted = {"thinks": thinks, "needed": needed, "over_run": over_run, "tail": tail}
    assert TASK.traits(EXAMPLE, text) == wanted


@FUZZ
@given(st.one_of(WRITTEN, PREFIXES))
def test_the_parts_of_a_length_never_exceed_it_and_miss_the_form_alone(text: str) -> None:
    traits = TASK.traits(EXAMPLE, text)
    rest = len(text) - traits["needed"] - traits["over_run"] - traits["tail"]
    strange = sum(character not in walk_letters for character in text.split("|")[0])
    assert 0 <= rest - strange <= 3  # the bar, the answer, the end sign


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("c$", "correct"),
        ("d$", "wrong"),
        ("c", "format"),
        ("$", "format"),
        ("", "format"),
        ("cc$", "format"),
        ("bc$", "format"),
    ],
)
def test_echo_by_hand(text: str, kind: str) -> None:
    verdict = Echo().verify(Problem("c:", "c"), text)
    assert (verdict.kind, verdict.correct) == (kind, kind == "correct")
    assert verdict.answer == (None if kind == "format" else text[0])


# ── The contract ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", sorted(TASKS))
def test_every_registered_task_keeps_the_contract(name: str) -> None:
    assert TASKS[name].name == name
    check_task(TASKS[name])


@pytest.mark.parametrize("difficulty", [{"n": 2, "k": 1}, {"n": 16, "k": 9}, {"n": (2, 16), "k": (1, 9)}], ids=str)
def test_the_pointer_world_keeps_it_at_its_edges(difficulty: dict) -> None:
    check_task(TASK, count=60, **difficulty)


class Unsteady(Pointer):
    def problem(self, generator, **difficulty):
        return super().problem(np.random.default_rng(), **difficulty)


class WrongGold(Pointer):
    def gold(self, problem):
        return super().gold(problem).replace("|", "")


class OtherAnswer(Echo):
    def verify(self, problem, text):
        verdict = super().verify(problem, text)
        return verdict if not verdict.correct else Verdict(True, "correct", "?")


class OddlyNamedSuccess(Echo):
    def verify(self, problem, text):
        verdict = super().verify(problem, text)
        return verdict if not verdict.correct else Verdict(True, "fine", verdict.answer)


class NoEnd(Pointer):
    def gold(self, problem):
        return super().gold(problem).removesuffix("$")


class TooShort(Pointer):
    def limit(self, problem):
        return len(self.gold(problem)) - 1


class PaysAnything(Echo):
    def verify(self, problem, text):
        return Verdict(True, "correct", problem.answer)


class PaysTheEnd(Echo):
    def verify(self, problem, text):
        return Verdict(True, "correct", problem.answer) if text == "$" else super().verify(problem, text)


class UnlistedKind(Echo):
    def verify(self, problem, text):
        verdict = super().verify(problem, text)
        return verdict if verdict.kind != "format" else Verdict(False, "odd")


class Fragile(Echo):
    def verify(self, problem, text):
        return Verdict(False, "wrong", text[0]) if text[0] != problem.answer else super().verify(problem, text)


class Constant(Echo):
    def problem(self, generator):
        return Problem("a:", "a")


@pytest.mark.parametrize(
    ("task", "complaint"),
    [
        (Unsteady(), "the same generator state gave two different problems"),
        (Echo(eos="#"), "eos '#' is not in the alphabet"),
        (WrongGold(), r"gold '.*' is judged '\w+'; it must be 'correct'"),
        (OtherAnswer(), r"reads as answer '\?', not"),
        (OddlyNamedSuccess(), "is judged 'fine'; it must be 'correct'"),
        (NoEnd(), r"must end in '\$' within"),
        (TooShort(), "must end in .* within"),
        (Echo(alphabet="abc:$"), r"characters \['d'\] are not in the alphabet"),
        (PaysAnything(), "'' is judged 'correct'; it must be one of"),
        (PaysTheEnd(), r"'\$' is judged 'correct'; it must be one of"),
        (UnlistedKind(), "is judged 'odd'; it must be one of"),
        (Fragile(), "verify raised IndexError.* for ''; it must judge any text"),
        (Constant(), r"the constant 'a\$' answers 30 of 30 problems"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Pointer | Echo) else "",
)
def test_the_contract_refuses(task, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as error:
        check_task(task, count=30)
    assert task.name in str(error.value)


# ── Held-out sets ────────────────────────────────────────────────────────────────────────────────────


def test_held_out_sets_are_made_by_name() -> None:
    sets, again = pointer_sets([8, 12], per_hop=20), pointer_sets([12, 16, 8], per_hop=20)
    assert list(sets) == ["n8", "n12"] and list(again) == ["n12", "n16", "n8"]
    assert sets["n8"] == again["n8"] and sets["n12"] == again["n12"]
    more = pointer_sets([8], per_hop=25)["n8"]
    assert [more[25 * hop + i] for hop in range(4) for i in range(20)] == sets["n8"]
    for n, problems in ((8, sets["n8"]), (12, sets["n12"])):
        assert Counter(p.meta["k"] for p in problems) == {3: 20, 4: 20, 5: 20, 6: 20}
        assert {p.meta["n"] for p in problems} == {n}


def test_splits_and_training_share_no_problem() -> None:
    test, dev = (pointer_sets([8, 12], split=split) for split in ("test", "dev"))
    prompts = [{p.prompt for problems in sets.values() for p in problems} for sets in (test, dev)]
    assert len(prompts[0]) == len(prompts[1]) == 400  # no repeats within a split (fault B74)
    seen = set()
    for step in range(30):
        source = generator(0, "problems", step)
        seen |= {TASK.problem(source, n=(4, 12), k=(1, 7)).prompt for _ in range(32)}
    assert not prompts[0] & prompts[1] and not prompts[0] & seen  # fault B123


def test_held_out_serves_every_task() -> None:
    assert {name: len(problems) for name, problems in held_out(TASK, {}, count=8).items()} == {
        "n8": 8,
        "n12": 8,
        "n14": 8,
        "n16": 8,
    }
    echo = held_out(Echo(), {}, count=30)["test"]
    assert len(echo) == 30 and {p.answer for p in echo} == set("abcd")
    assert held_out(Echo(), {}, count=30)["test"] == echo
