"""Evaluation against a slow reader that samples one completion at a time and counts by hand."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from oracles import sample_slowly

from rlvr.algo import preset
from rlvr.lab import store
from rlvr.lab.evaluate import GREEDY, accuracy_by_set, evaluate
from rlvr.lab.rollout import demonstrate
from rlvr.lab.step import update
from rlvr.policy import Decoding, LabPolicy
from rlvr.rng import generator
from rlvr.tasks import TASKS, Pointer
from rlvr.types import Problem, Samples, Verdict

TASK = Pointer()
WARM = Decoding(temperature=0.7)


@pytest.fixture(autouse=True)
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def posed(count: int, purpose: str = "evaluate", **difficulty) -> list[Problem]:
    return [TASK.problem(generator(5, purpose, i), **difficulty) for i in range(count)]


SETS = {"small": posed(7, n=(2, 3), k=1), "large": posed(5, n=(5, 9), k=(2, 5))}


@pytest.fixture(scope="module")
def policy() -> LabPolicy:
    """Trained for a moment: often wrong, in every way there is, and right now and then."""
    torch.set_default_dtype(torch.float64)
    policy = LabPolicy.create(TASK.alphabet, TASK.eos, seed=2, width=32, heads=2)
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=3e-3, weight_decay=0.0)
    for step in range(60):
        rollouts = demonstrate(policy, TASK, posed(16, f"training {step}", n=(2, 5), k=(1, 4)))
        update(policy, optimizer, rollouts, preset("sft"), Decoding(), 1.0)
    return policy


def untrained() -> LabPolicy:
    return LabPolicy.create(TASK.alphabet, TASK.eos, seed=3, width=16, heads=2)


class Spy:
    """A policy that remembers with which numbers it was asked to draw."""

    def __init__(self, policy: LabPolicy) -> None:
        self.policy, self.decode, self.asked = policy, policy.decode, []

    def sample(self, problems, group_size, uniforms, limits, decoding) -> Samples:
        self.asked.append((list(problems), group_size, uniforms.copy(), list(limits), decoding))
        return self.policy.sample(problems, group_size, uniforms, limits, decoding)


def entropy_slowly(policy: LabPolicy, problem: Problem, text: str, temperature: float) -> float:
    """Nats of all positions of one completion, from the logits of a plain forward pass."""
    prompt, tokens = policy.encode(problem.prompt), policy.encode(text)
    with torch.no_grad():
        logits = policy.model(torch.tensor([prompt + tokens]), torch.tensor([problem.meta["offset"]]))[0]
    total = 0.0
    for place in range(len(tokens)):
        scaled = logits[len(prompt) - 1 + place].numpy() / temperature
        shares = np.exp(scaled - scaled.max()) / np.exp(scaled - scaled.max()).sum()
        total -= sum(share * math.log(share) for share in shares if share > 0)
    return total


def slowly(policy: LabPolicy, asked, sets, samples: int) -> list[dict]:
    """The columns row by row: each completion drawn alone, judged alone, counted one by one."""
    rows = []
    for (label, problems), (_, _, draws, _, decoding) in zip(sets.items(), asked, strict=True):
        for p, problem in enumerate(problems):
            right, tokens, nats, kinds, answers, traits = 0, 0, 0.0, {}, [], {}
            for draw in draws[p * samples : (p + 1) * samples]:
                drawn = sample_slowly(policy, [problem], 1, draw[None], [TASK.limit(problem)], decoding)
                text = policy.decode(drawn.tokens[0].tolist())
                verdict = TASK.verify(problem, text)
                right += verdict.correct
                tokens += len(text)
                nats += entropy_slowly(policy, problem, text, decoding.temperature) if decoding.temperature else 0.0
                kinds[verdict.kind] = kinds.get(verdict.kind, 0) + 1
                for name, value in TASK.traits(problem, text).items():
                    traits[f"traits/{name}"] = traits.get(f"traits/{name}", 0.0) + value / samples
                answers += [verdict.answer] if verdict.answer is not None else []
            most = max((answers.count(answer) for answer in answers), default=0)
            winner = next((answer for answer in answers if answers.count(answer) == most), None)
            row = {"set": label, "correct": right, "samples": samples, "length": tokens / samples, "kinds": kinds}
            row |= {"entropy": nats / tokens, "majority": winner == problem.answer}
            rows.append(row | traits | {key: problem.meta[key] for key in ("n", "k", "offset")})
    return rows


def rows_of(evaluation) -> list[dict]:
    columns = evaluation["columns"]
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def same(found: Sequence[dict], expected: Sequence[dict]) -> None:
    assert len(found) == len(expected)
    for row, wanted in zip(found, expected, strict=True):
        assert row.keys() == wanted.keys()
        for name, value in wanted.items():
            assert row[name] == (pytest.approx(value, rel=1e-9) if isinstance(value, float) else value), (name, row)


@pytest.mark.parametrize(
    ("samples", "decoding"), [(1, GREEDY), (1, Decoding()), (6, WARM), (40, Decoding(1.3))], ids=str
)
def test_every_column_equals_the_slow_reader(policy, samples: int, decoding: Decoding) -> None:
    spy = Spy(policy)
    evaluation = evaluate(spy, TASK, SETS, step=3, samples=samples, decoding=decoding, seed=4)
    expected = slowly(policy, spy.asked, SETS, samples)
    same(rows_of(evaluation), expected)
    assert [asked[1] for asked in spy.asked] == [samples, samples]
    # Rich enough to notice a mistake in any column.
    assert {row["majority"] for row in expected} == {True, False} and len({row["length"] for row in expected}) > 1
    assert len({kind for row in expected for kind in row["kinds"]}) >= (5 if samples > 1 else 2)


def test_the_settings_are_written_down(policy) -> None:
    """Fault B121: numbers made with other settings must be recognisable as such."""
    decoding = Decoding(temperature=0.8, top_k=7, top_p=0.9)
    evaluation = evaluate(policy, TASK, SETS, step=50, samples=3, decoding=decoding, seed=9)
    del evaluation["columns"]
    described = evaluation.pop("sets")
    assert {label: (each["problems"], each["limit"]) for label, each in described.items()} == {
        label: (len(problems), max(map(TASK.limit, problems))) for label, problems in SETS.items()
    }
    assert evaluation == {
        "name": "sampled",
        "step": 50,
        "samples_per_problem": 3,
        "temperature": 0.8,
        "top_k": 7,
        "top_p": 0.9,
        "seed": 9,
    }
    assert evaluate(policy, TASK, SETS)["name"] == "greedy"


def test_what_is_evaluated_can_be_stored(policy, tmp_path) -> None:
    evaluation = evaluate(policy, TASK, SETS, step=2, samples=5, decoding=WARM)
    store.write_eval(tmp_path, evaluation)
    assert store.read_evals(tmp_path) == [evaluation]


# ── Which numbers are drawn ──────────────────────────────────────────────────────────────────────────


def draws(policy: LabPolicy, sets=SETS, **settings) -> list[np.ndarray]:
    spy = Spy(policy)
    evaluate(spy, TASK, sets, **{"samples": 4, "decoding": WARM, **settings})
    return [asked[2] for asked in spy.asked]


def test_common_random_numbers_for_two_policies_and_two_steps(policy) -> None:
    first, other = draws(policy, step=0), draws(untrained(), step=50)
    assert all(np.array_equal(one, two) for one, two in zip(first, other, strict=True))
    assert all(((one >= 0) & (one < 1)).all() and one.dtype == np.float64 for one in first)


def test_b109_another_seed_or_another_set_draws_other_numbers(policy) -> None:
    (first, second), (other, _) = draws(policy), draws(policy, seed=1)
    assert (first != other).all()
    small = {"small": SETS["small"], "twin": SETS["small"]}
    one, twin = draws(policy, small)
    assert np.array_equal(one, first) and (one != twin).all()
    # Nothing repeats from sample to sample or from place to place (fault B108).
    assert len(np.unique(np.concatenate([first.ravel(), second.ravel()]))) == first.size + second.size


@pytest.mark.parametrize(("samples", "decoding"), [(1, GREEDY), (8, WARM)], ids=str)
def test_sets_together_are_sets_apart(policy, samples: int, decoding: Decoding) -> None:
    together = rows_of(evaluate(policy, TASK, SETS, samples=samples, decoding=decoding))
    apart = [evaluate(policy, TASK, {label: SETS[label]}, samples=samples, decoding=decoding) for label in SETS]
    same(together, [row for evaluation in apart for row in rows_of(evaluation)])
    turned = evaluate(policy, TASK, dict(reversed(SETS.items())), samples=samples, decoding=decoding)
    same(sorted(rows_of(turned), key=lambda row: row["set"], reverse=True), together)


def test_greedy_ignores_chance_and_the_company_of_a_problem(policy) -> None:
    whole = rows_of(evaluate(policy, TASK, SETS))
    same(rows_of(evaluate(policy, TASK, SETS, seed=1)), whole)
    alone = [rows_of(evaluate(policy, TASK, {label: [problem]}))[0] for label in SETS for problem in SETS[label]]
    same(alone, whole)


def test_equal_evaluations_are_equal_to_the_bit(policy) -> None:
    first, again = (evaluate(policy, TASK, SETS, samples=8, decoding=WARM) for _ in range(2))
    assert first == again


def test_b108_samples_of_one_problem_are_distinct_and_come_again() -> None:
    """One problem, 8 samples, uniform over 1000 characters, length 5: eight texts, the same ones every time."""
    alphabet = "".join(chr(0x4E00 + i) for i in range(1000))
    policy = LabPolicy.create(alphabet, alphabet[-1], seed=0, width=16, heads=2)
    with torch.no_grad():
        policy.model.head.weight.zero_()
    seen: list[str] = []

    @dataclass(frozen=True)
    class Free:
        def limit(self, problem):
            return 5

        def verify(self, problem, text):
            seen.append(text)
            return Verdict(False, "wrong", text)

    for _ in range(2):
        (row,) = rows_of(evaluate(policy, Free(), {"one": [Problem(alphabet[0], "?")]}, samples=8, decoding=Decoding()))
        assert row["kinds"] == {"wrong": 8}
    assert len(set(seen)) == 8 and seen[:8] == seen[8:]
    assert row["entropy"] == pytest.approx(math.log(1000)) and row["length"] == 5


# ── Votes and counts, with completions made by hand ──────────────────────────────────────────────────


class Script:
    """A policy that writes what it was given, in order."""

    def __init__(self, texts: Sequence[str], entropies: Sequence[Sequence[float]] | None = None) -> None:
        self.texts, self.entropies = texts, entropies

    def sample(self, problems, group_size, uniforms, limits, decoding) -> Samples:
        assert len(self.texts) == len(problems) * group_size
        width = max(map(len, self.texts))
        # The padding looks like a token that was written: 9.
        tokens = torch.tensor([[int(c) for c in text] + [9] * (width - len(text)) for text in self.texts])
        mask = torch.arange(width) < torch.tensor([[len(text)] for text in self.texts])
        entropies = torch.zeros(tokens.shape) if self.entropies is None else torch.tensor(self.entropies).double()
        return Samples(tokens, mask, torch.zeros(tokens.shape), entropies, mask.any(1))

    def decode(self, ids) -> str:
        return "".join(map(str, ids))


@dataclass(frozen=True)
class Digits:
    """The answer is the whole text; a text that begins with 0 has none."""

    def limit(self, problem):
        return 4

    def verify(self, problem, text):
        if text[0] == "0":
            return Verdict(False, "format")
        return Verdict(text == problem.answer, "correct" if text == problem.answer else "wrong", text)


def count(texts: Sequence[str], answer: str, problems: int = 1, entropies=None) -> list[dict]:
    sets = {"one": [Problem("?", answer)] * problems}
    script = Script(texts, entropies)
    return rows_of(evaluate(script, Digits(), sets, samples=len(texts) // problems, decoding=Decoding()))


@pytest.mark.parametrize(
    ("texts", "answer", "majority"),
    [
        (["7", "7", "5"], "7", True),
        (["7", "7", "5"], "5", False),
        (["5", "7", "7", "5", "1"], "5", True),  # a tie goes to what came first
        (["5", "7", "7", "5", "1"], "7", False),
        (["7", "5", "7", "5", "1"], "7", True),
        (["0", "01", "02", "03", "7"], "7", True),  # what has no answer doesn't vote, however often
        (["0", "0", "0"], "0", False),  # nobody votes: not even an answer that looks like the text
        (["0"], "7", False),
        # Fault B79: whole answers vote, not their first characters: 58, 52 and 9 are a tie of three.
        (["58", "52", "9"], "58", True),
        (["9", "58", "52"], "9", True),
        (["9", "58", "52"], "58", False),
        (["9", "58", "52", "52"], "52", True),
    ],
    ids=str,
)
def test_majority(texts: list[str], answer: str, majority: bool) -> None:
    (row,) = count(texts, answer)
    assert row["majority"] is majority
    assert row["correct"] == sum(text == answer and text[0] != "0" for text in texts)


def test_equal_texts_count_as_often_as_they_were_drawn() -> None:
    """Fault B75: repeats are judged once, but each of them is a sample."""
    (row,) = count(["7", "7", "7", "5", "0", "7", "0"], "7")
    assert (row["correct"], row["samples"], row["kinds"]) == (4, 7, {"correct": 4, "wrong": 1, "format": 2})


def test_a_missing_answer_shifts_nobody_elses_score() -> None:
    """Fault B79: 4, no answer, 4 against gold 4."""
    rows = count(["4", "0", "4"], "4", problems=3)
    assert [row["correct"] for row in rows] == [1, 0, 1]
    assert [row["kinds"] for row in rows] == [{"correct": 1}, {"format": 1}, {"correct": 1}]


def test_lengths_and_entropies_are_means_over_samples_and_over_tokens() -> None:
    """Lengths 1, 3 and 2 | 2, 1 and 1, in a table of width 3 (fault B40: the padding is no token)."""
    nats = [[1, 0, 0], [2, 3, 4], [5, 6, 0], [1, 1, 0], [7, 0, 0], [2, 0, 0]]
    first, second = count(["7", "777", "71", "77", "1", "2"], "7", problems=2, entropies=nats)
    assert first["length"] == pytest.approx(6 / 3) and first["entropy"] == pytest.approx((1 + 9 + 11) / 6)
    assert second["length"] == pytest.approx(4 / 3) and second["entropy"] == pytest.approx((2 + 7 + 2) / 4)
    assert (first["correct"], second["correct"]) == (1, 0)


def test_facts_are_the_whole_numbers_of_a_problem(policy) -> None:
    problem = replace(SETS["large"][0], meta={**SETS["large"][0].meta, "level": 3, "share": 0.5, "word": "x"})
    (row,) = rows_of(evaluate(policy, TASK, {"one": [problem]}))
    assert row["level"] == 3 and not {"share", "word", "orbit"} & set(row)


def test_accuracy_is_a_mean_over_problems() -> None:
    """Each problem counts once, however often it was sampled."""
    columns = {"set": ["a", "b", "a", "a"], "correct": [1, 0, 3, 0], "samples": [1, 8, 4, 2]}
    assert accuracy_by_set({"columns": columns}) == {"a": pytest.approx((1 + 0.75 + 0) / 3), "b": 0.0}


def test_accuracy_of_an_evaluation(policy) -> None:
    evaluation = evaluate(policy, TASK, SETS, samples=40, decoding=Decoding(1.3))
    found, totals = accuracy_by_set(evaluation), Counter()
    for row in rows_of(evaluation):
        totals[row["set"]] += row["correct"]
    assert found == {"small": pytest.approx(totals["small"] / 280), "large": pytest.approx(totals["large"] / 200)}
    assert totals["small"] > 0


def test_sets_with_different_facts_share_a_table() -> None:
    task = TASKS["echo"]
    policy = LabPolicy.create(task.alphabet, task.eos, seed=0, width=16, heads=2)
    sets = {"short": [Problem("a:", "a", {"n": 1})], "long": [Problem("b:", "b", {"k": 2})] * 2}
    columns = evaluate(policy, task, sets)["columns"]
    assert columns["n"] == [1, None, None] and columns["k"] == [None, 2, 2]
    assert {len(column) for column in columns.values()} == {3}
