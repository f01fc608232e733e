"""Bootstrapping: what is kept is what an oracle keeps, what is counted is what a hand counts, and a stop anywhere changes
nothing."""

import itertools
import random
import shutil
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlvr.cli import main
from rlvr.lab import bootstrap as loop
from rlvr.lab import harvest as harvesting
from rlvr.lab import pretrain, store
from rlvr.lab import train as training
from rlvr.lab.bootstrap import BOOTSTRAPS, Bootstrap, accounts, bootstrap, with_settings
from rlvr.lab.corpus import lessons_of, read_corpus
from rlvr.lab.draw import draw
from rlvr.lab.harvest import Answer, choose, harvest
from rlvr.lab.jsonl import iter_jsonl, read_json, write_jsonl
from rlvr.lab.recipe import Recipe
from rlvr.lab.rollout import collect
from rlvr.policy import CharTokenizer, Decoding
from rlvr.rng import generator
from rlvr.tasks import TASKS, Pointer, check_task
from rlvr.types import Problem, Samples

TASK = Pointer()
EASY = {"n": (2, 3), "k": (1, 2)}
SETS = {"n3": [TASK.problem(generator(0, "held out", i), n=3, k=1) for i in range(6)]}
BASE = Recipe(
    preset="sft",
    difficulty={**EASY, "hint": 0.5},
    base=None,
    shape={"layers": 1, "width": 16, "heads": 2},
    steps=120,
    prompts_per_step=16,
    learning_rate=1e-2,
)
SMALL = Bootstrap(
    difficulty=EASY,
    rounds=2,
    problems=24,
    samples=3,
    temperature=1.0,
    rationalize=True,
    keep=2,
    steps=3,
    prompts_per_step=4,
    learning_rate=1e-2,
    warmup_steps=0,
    seed=5,
)


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    """A policy that is right now and then, and more often with a hint."""
    return training.train(tmp_path_factory.mktemp("base") / "tiny", BASE)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory, base: Path) -> Path:
    return bootstrap(tmp_path_factory.mktemp("unbroken") / "boot", SMALL, base, SETS)


# ── Hints of the pointer world ──────────────────────────────────────────────────────────────


PINNED = [
    Problem("og,kb,bo,gk,?k2:", "o", {"n": 4, "k": 2, "offset": 2, "orbit": "bogkbog"}),
    Problem("kj,lc,ck,jn,me,el,nm,?c2:", "j", {"n": 7, "k": 2, "offset": 6, "orbit": "kjnmelc"}),
    Problem(
        "ga,lh,oe,ec,pn,cf,ig,ki,nd,jk,hp,ml,fj,do,ab,bm,?c9:",
        "l",
        {"n": 16, "k": 9, "offset": 11, "orbit": "fjkigabmlhpndo"},
    ),
]


def test_worlds_without_hints_are_what_they_were() -> None:
    """Drawn by the code before there were hints."""
    source = generator(0, "pin")
    found = [TASK.problem(source, **each) for each in ({"n": 4, "k": 2}, {"n": (4, 8), "k": (1, 7)}, {"n": 16, "k": 9})]
    assert found == PINNED
    assert source.random() == 0.2758715935133508


def test_a_hint_is_the_answer_before_the_colon_and_nothing_else() -> None:
    for i in range(200):
        problem = TASK.problem(np.random.default_rng(i), n=(2, 16), k=(1, 9))
        hinted = TASK.problem(np.random.default_rng(i), n=(2, 16), k=(1, 9), hint=1.0)
        assert hinted.prompt == problem.prompt[:-1] + problem.answer + ":" and len(problem.prompt) + 1 == len(
            hinted.prompt
        )
        assert (hinted.answer, hinted.meta) == (problem.answer, problem.meta)
        assert TASK.hinted(problem) == TASK.hinted(hinted) == hinted
        assert TASK.plain(hinted) == TASK.plain(problem) == problem
    check_task(TASK, count=50, n=(4, 8), k=(1, 7), hint=0.5)


def test_hints_come_as_often_as_asked() -> None:
    source = np.random.default_rng(0)
    shown = [TASK.problem(source, n=4, hint=0.3).prompt[-2].isalpha() for _ in range(2000)]
    assert abs(np.mean(shown) - 0.3) < 4 * (0.3 * 0.7 / 2000) ** 0.5
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match=r"hint = .*0 to 1"):
            TASK.problem(source, n=4, hint=wrong)


def test_a_sound_chain_is_the_orbit_up_to_the_answer() -> None:
    for i in range(100):
        problem = TASK.problem(np.random.default_rng(i), n=(4, 8), k=(2, 7))
        assert TASK.sound(problem, TASK.gold(problem))
        k, orbit = problem.meta["k"], problem.meta["orbit"]
        for wrong in (TASK.direct(problem), orbit, orbit[:k], "a" * k + f"|{problem.answer}$"):
            assert not TASK.sound(problem, wrong)
    capitals = Problem("AB,BA,?A2:", "A", {"k": 2, "orbit": "BABABAB"})
    assert TASKS["bilingual"].sound(capitals, "ba|A$")


# ── The corpus ──────────────────────────────────────────────────────────────────────────────


def rows(count: int) -> list[dict[str, Any]]:
    found = []
    for i in range(count):
        problem = TASK.problem(generator(1, "rows", i), n=4, k=2)
        facts = {"prompt": problem.prompt, "answer": problem.answer, "meta": problem.meta}
        found.append({**facts, "completion": TASK.gold(problem), "origin": "own"})
    return found


def corpus(path: Path, count: int = 7) -> Path:
    write_jsonl(path, rows(count))
    return path


def test_every_epoch_meets_every_row_once(tmp_path: Path) -> None:
    path, texts = corpus(tmp_path / "c.jsonl"), sorted(row["prompt"] for row in rows(7))
    for count in (2, 3, 7, 10):
        met = [lesson.prompt for step in range(30) for lesson in lessons_of(path, 4, step, count)]
        epochs = [met[low : low + 7] for low in range(0, len(met) - 6, 7)]
        assert all(sorted(epoch) == texts for epoch in epochs)
        assert len({tuple(epoch) for epoch in epochs}) > len(epochs) // 2
    assert lessons_of(path, 4, 0, 7) != lessons_of(path, 5, 0, 7)


def test_a_batch_is_what_the_corpus_says(tmp_path: Path, base: Path) -> None:
    recipe = Recipe(preset="sft", corpus=str(corpus(tmp_path / "c.jsonl")), prompts_per_step=5)
    policy, _ = training.open_run(base)
    batch = draw(policy, recipe, 0).batch
    told = {row["prompt"]: row for row in rows(7)}
    for problem, text, ids, mask in zip(
        batch.problems, batch.texts, batch.samples.tokens, batch.samples.mask, strict=True
    ):
        row = told[problem.prompt]
        assert (problem.answer, problem.meta, text) == (row["answer"], row["meta"], row["completion"])
        assert policy.decode(ids[mask].tolist()) == row["completion"]


def test_a_corpus_is_read_anew_when_it_changes(tmp_path: Path) -> None:
    path = corpus(tmp_path / "c.jsonl")
    assert len(read_corpus(path)) == 7
    assert len(read_corpus(corpus(path, 8))) == 8


BROKEN = {
    "prompt": ("", "prompt = ''"),
    "answer": (3, "answer = 3"),
    "meta": (None, "meta = None"),
    "completion": (None, "completion = None"),
}


@pytest.mark.parametrize("key", BROKEN)
def test_a_row_that_teaches_nothing_is_named(tmp_path: Path, key: str) -> None:
    value, words = BROKEN[key]
    write_jsonl(tmp_path / "c.jsonl", [*rows(2), {**rows(1)[0], key: value}])
    with pytest.raises(ValueError, match=f"row 3 has {words}"):
        read_corpus(tmp_path / "c.jsonl")


def test_no_corpus_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no corpus"):
        training.train(tmp_path / "run", Recipe(preset="sft", base=None, corpus="nowhere.jsonl"))
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(ValueError, match="is empty"):
        read_corpus(tmp_path / "empty.jsonl")
    for name in ("rft", "grpo"):
        with pytest.raises(ValueError, match=f"{name} learns from its own completions"):
            Recipe(preset=name, corpus="c.jsonl")


def test_a_run_goes_on_only_with_its_corpus(tmp_path: Path, base: Path) -> None:
    recipe = replace(BASE, corpus="../c.jsonl", steps=2)
    corpus(tmp_path / "c.jsonl")
    run = training.train(tmp_path / "run", recipe, base)
    (run / "model.safetensors").unlink()
    corpus(tmp_path / "c.jsonl", 8)
    with pytest.raises(ValueError, match="its corpus differ"):
        training.train(run, recipe, base)
    moved = shutil.move(tmp_path / "run", tmp_path / "moved")
    corpus(tmp_path / "c.jsonl")
    assert store.is_finished(training.train(Path(moved), recipe, base))


# ── What is kept ────────────────────────────────────────────────────────────────────────────


def kept_by_hand(right: list[Answer], distinct: bool, keep: int | None) -> list[Answer]:
    """Problem by problem, without a set or a counter."""
    chosen = []
    for problem in range(max((answer.problem for answer in right), default=-1) + 1):
        mine = [answer for answer in right if answer.problem == problem]
        if distinct:
            before = [[other.text.split("|")[0] for other in mine[:i]] for i in range(len(mine))]
            mine = [a for a, earlier in zip(mine, before, strict=True) if a.text.split("|")[0] not in earlier]
        chosen += mine if keep is None else mine[:keep]
    return chosen


def test_the_filter_keeps_what_an_oracle_keeps() -> None:
    dice, lost = random.Random(0), 0
    for _ in range(300):
        texts = ["b|b$", "b|b", "bc|b$", "|b$", "cb|bb$", "b"]
        places = sorted(dice.randrange(4) for _ in range(dice.randrange(16)))
        right = [Answer(place, dice.choice(texts), dice.choice(["own", "hint"])) for place in places]
        for distinct, keep in itertools.product((False, True), (None, 1, 2, 3)):
            chosen = choose(right, distinct, keep)
            assert chosen == kept_by_hand(right, distinct, keep)
            lost += len(right) - len(chosen)
    assert lost > 1000


class Scripted:
    """A policy that says what is written: ``answers`` maps a prompt to its completions, one a sample."""

    def __init__(self, answers: Mapping[str, list[str]]) -> None:
        self.answers, self.asked, self.decodings = answers, [], []
        self.tokenizer = CharTokenizer(TASK.alphabet, TASK.eos)

    def sample(self, problems, group_size, uniforms, limits, decoding) -> Samples:
        self.asked.append((list(problems), uniforms))
        self.decodings.append(decoding.temperature)
        ids = [self.tokenizer.encode(text) for problem in problems for text in self.answers[problem.prompt]]
        assert len(ids) == len(problems) * group_size == len(uniforms)
        width = max(map(len, ids))
        mask = torch.arange(width) < torch.tensor([len(row) for row in ids])[:, None]
        tokens = torch.tensor([row + [0] * (width - len(row)) for row in ids])
        zeros = torch.zeros(tokens.shape)
        return Samples(tokens, mask, zeros, zeros, torch.ones(len(ids), dtype=torch.bool))

    def decode(self, ids) -> str:
        return self.tokenizer.decode(ids)


def cycle(start: str, k: int) -> Problem:
    """The mapping a -> b -> c -> a."""
    orbit = "".join("abc"[("abc".index(start) + hop) % 3] for hop in range(1, k + 6))
    return Problem(f"ab,bc,ca,?{start}{k}:", orbit[k - 1], {"n": 3, "k": k, "offset": 1, "orbit": orbit})


POOL = [cycle("a", 2), cycle("b", 1), cycle("c", 2), cycle("a", 1)]
SAID = {
    "ab,bc,ca,?a2:": ["bc|c$", "bc|c$", "bb|c$"],  # sound, the same again, right for wrong reasons
    "ab,bc,ca,?b1:": ["b|b$", "|a$", "c"],  # wrong, wrong, no answer
    "ab,bc,ca,?b1c:": ["c|c$", "a|c$", "c|b$"],  # explained: sound, unsound, wrong
    "ab,bc,ca,?c2:": ["ab|a$", "ab|b$", "b$"],  # wrong all three: the answer is b; the second one is right
    "ab,bc,ca,?a1:": ["a|a$", "a|a$", "a|a$"],
    "ab,bc,ca,?a1b:": ["a|a$", "|b$", "|c$"],  # explained by nothing: unsound
}
PLAIN = Bootstrap(difficulty=EASY, samples=3, temperature=0.7)
# By hand. Tokens of the own answers: 5+5+5, 4+3+1, 5+5+2, 4+4+4; of the hinted: 4+4+4, 4+3+3.
OWN = {"problems": 4, "samples": 12, "tokens": 47, "hinted_samples": 0, "hinted_tokens": 0}
FOUND = {"right": 4, "solved": 2, "distinct": 3}
HINTED = {**OWN, "samples": 18, "tokens": 69, "hinted_samples": 6, "hinted_tokens": 22}
NO_HINTS = {"rationalized": 0, "gold": 0, "unsound_rationalized": 0}
BY_HAND = {
    "everything": ({}, {**OWN, **FOUND, **NO_HINTS, "kept": 4, "unsound": 1}),
    "distinct": ({"distinct": True}, {**OWN, **FOUND, **NO_HINTS, "kept": 3, "unsound": 1}),
    "keep": ({"keep": 1}, {**OWN, **FOUND, **NO_HINTS, "kept": 2, "unsound": 0}),
    "hints": (
        {"rationalize": True},
        {**HINTED, **FOUND, "kept": 7, "rationalized": 3, "gold": 0, "unsound": 3, "unsound_rationalized": 2},
    ),
    "gold": ({"with_gold": True, "keep": 1}, {**OWN, **FOUND, **NO_HINTS, "kept": 6, "gold": 4, "unsound": 0}),
}


def reap(policy, changes: Mapping[str, Any] = {}, pool=POOL):
    return harvest(policy, TASK, pool, replace(PLAIN, **changes), partial(generator, 3))


@pytest.mark.parametrize("name", BY_HAND)
def test_the_account_is_that_of_a_hand(name: str) -> None:
    changes, expected = BY_HAND[name]
    policy = Scripted(SAID)
    found = reap(policy, changes)
    assert found.account == expected
    assert len(found.rows) == expected["kept"] and set(policy.decodings) == {0.7}


def test_rows_stand_in_the_order_of_the_pool_and_say_where_they_are_from() -> None:
    found = reap(Scripted(SAID), {"rationalize": True, "with_gold": True, "distinct": True})
    told = [(row["prompt"], row["completion"], row["origin"]) for row in found.rows]
    gold = [(problem.prompt, TASK.gold(problem), "gold") for problem in POOL]
    assert told == [
        ("ab,bc,ca,?a2:", "bc|c$", "own"),
        ("ab,bc,ca,?a2:", "bb|c$", "own"),
        gold[0],
        ("ab,bc,ca,?b1:", "c|c$", "hint"),
        ("ab,bc,ca,?b1:", "a|c$", "hint"),
        gold[1],
        ("ab,bc,ca,?c2:", "ab|b$", "own"),
        gold[2],
        ("ab,bc,ca,?a1:", "|b$", "hint"),
        gold[3],
    ]
    assert all(row["meta"] == problem.meta for row, problem in zip(found.rows[:3], POOL[:1] * 3, strict=True))


def test_a_hinted_problem_has_the_same_draws_whichever_others_failed() -> None:
    few, many = Scripted(SAID), Scripted({**SAID, "ab,bc,ca,?c2:": ["b$"] * 3, "ab,bc,ca,?c2b:": ["b$"] * 3})
    for policy in (few, many):
        reap(policy, {"rationalize": True})
    (own, first), (own_too, second) = few.asked[0], many.asked[0]
    assert own == own_too == POOL and (first == second).all()
    places = {problem.prompt: i for i, problem in enumerate(many.asked[1][0])}
    assert len(places) == 3 and len(few.asked[1][0]) == 2
    for i, problem in enumerate(few.asked[1][0]):
        j = places[problem.prompt]
        assert (few.asked[1][1][3 * i : 3 * i + 3] == many.asked[1][1][3 * j : 3 * j + 3]).all()
    assert not np.isin(few.asked[1][1], first).any()


def test_a_task_that_knows_no_soundness_says_none(tmp_path: Path) -> None:
    settings = Bootstrap(
        task="echo", difficulty={}, base=None, rounds=1, problems=40, samples=8, temperature=1.0, steps=1
    )
    (found,) = accounts(bootstrap(tmp_path / "boot", settings))
    assert found["unsound"] is None and found["unsound_rationalized"] is None and found["kept"] > 0


# ── Rounds ──────────────────────────────────────────────────────────────────────────────────


def told(folder: Path) -> dict[str, Any]:
    """Everything that a bootstrap left, apart from what the clock says."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.name == "metrics.jsonl":
            clock = ("seconds", "tokens_per_second", "time/sample", "time/update", "time/step")
            found[name] = [{key: row[key] for key in row if key not in clock} for row in iter_jsonl(path)]
        elif path.is_file() and path.name not in ("env.json", ".lock"):
            found[name] = path.read_bytes()
    return found


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def test_the_rounds_have_something_to_lose(unbroken: Path, base: Path) -> None:
    first, second = accounts(unbroken)
    assert 0 < first["solved"] < SMALL.problems and first["rationalized"] > 0 and first["distinct"] > first["solved"]
    assert first["unsound"] > first["unsound_rationalized"] > 0
    assert first["kept"] != second["kept"]
    assert [account["updates"] for account in (first, second)] == [3, 3]
    assert [account["demonstrations"] for account in (first, second)] == [12, 12]
    assert set(first["accuracy"]) == {"n3"}
    assert len({weights(base), *(weights(unbroken / f"round-{r}" / "train") for r in (1, 2))}) == 3


def test_what_is_counted_is_what_is_written(unbroken: Path) -> None:
    pool = {problem.prompt: problem for problem in SMALL.pool()}
    for number, account in enumerate(accounts(unbroken), start=1):
        written = list(iter_jsonl(unbroken / f"round-{number}" / "corpus.jsonl"))
        assert account["round"] == number and account["kept"] == len(written)
        assert account["rationalized"] == sum(row["origin"] == "hint" for row in written)
        unsound = [row for row in written if not TASK.sound(pool[row["prompt"]], row["completion"])]
        assert account["unsound"] == len(unsound)
        assert account["unsound_rationalized"] == sum(row["origin"] == "hint" for row in unsound)
        assert account["samples"] == 3 * (24 + 24 - account["solved"])
        for row in written:
            problem = pool[row["prompt"]]
            assert (row["answer"], row["meta"]) == (problem.answer, problem.meta)
            assert TASK.verify(problem, row["completion"]).correct


def test_the_accuracy_is_that_of_the_model_that_came_out(unbroken: Path) -> None:
    for number, account in enumerate(accounts(unbroken), start=1):
        policy, _ = training.open_run(unbroken / f"round-{number}" / "train")
        limits = [TASK.limit(problem) for problem in SETS["n3"]]
        drawn = policy.sample(SETS["n3"], 1, np.zeros((6, max(limits))), limits, Decoding(0.0))
        texts = [policy.decode(ids[mask].tolist()) for ids, mask in zip(drawn.tokens, drawn.mask, strict=True)]
        right = [text.partition("|")[2][:1] == each.answer for text, each in zip(texts, SETS["n3"], strict=True)]
        assert account["accuracy"]["n3"] == np.mean(right)


def test_what_was_asked_for_reaches_the_training(base: Path, tmp_path: Path) -> None:
    asked = {
        "learning_rate": 3e-3,
        "schedule": "constant",
        "warmup_steps": 2,
        "prompts_per_step": 3,
        "seed": 9,
        "growth": 2.0,
    }
    folder = bootstrap(tmp_path / "boot", with_settings(SMALL, asked), base)
    for number, steps in ((1, 3), (2, 6)):
        recipe = training.read_recipe(folder / f"round-{number}" / "train")
        assert {name: vars(recipe)[name] for name in asked if name != "growth"} | {"growth": 2.0} == asked
        assert (recipe.steps, recipe.preset, recipe.difficulty) == (steps, "sft", EASY)


def test_the_corpus_never_shows_a_hint(unbroken: Path) -> None:
    hinted = 0
    for path in unbroken.rglob("corpus.jsonl"):
        for row in iter_jsonl(path):
            assert row["prompt"][-2].isdigit()
            hinted += row["origin"] == "hint"
    assert hinted > 5
    with pytest.raises(ValueError, match="must not show one"):
        replace(SMALL, difficulty={**EASY, "hint": 0.5})


def test_hints_are_shown_at_generation(base: Path, tmp_path: Path, monkeypatch) -> None:
    asked = []

    def watched(policy, task, problems, *rest):
        asked.append([problem.prompt for problem in problems])
        return collect(policy, task, problems, *rest)

    monkeypatch.setattr(harvesting, "collect", watched)
    bootstrap(tmp_path / "boot", replace(SMALL, rounds=1), base)
    (solved,) = (account["solved"] for account in accounts(tmp_path / "boot"))
    assert asked[0] == [problem.prompt for problem in SMALL.pool()]
    assert len(asked[1]) == 24 - solved and all(prompt[-2].isalpha() for prompt in asked[1])


@pytest.mark.parametrize("restart", [True, False])
def test_a_restart_begins_at_the_base_and_nothing_else_does(base, tmp_path, monkeypatch, restart: bool) -> None:
    begun, sampled, draw_batch, reap_corpus = [], [], training.draw, loop.harvest

    def state(policy) -> bytes:
        training.save_weights(tmp_path / "seen.safetensors", policy.model)
        return (tmp_path / "seen.safetensors").read_bytes()

    def watched_draw(policy, recipe, step, history):
        if step == 0:
            begun.append(state(policy))
        return draw_batch(policy, recipe, step, history)

    def watched_harvest(policy, *rest):
        sampled.append(state(policy))
        return reap_corpus(policy, *rest)

    monkeypatch.setattr(training, "draw", watched_draw)
    monkeypatch.setattr(loop, "harvest", watched_harvest)
    folder = bootstrap(tmp_path / "boot", replace(SMALL, rounds=3, restart=restart), base)
    trained = [weights(folder / f"round-{number}" / "train") for number in (1, 2, 3)]
    assert sampled == [weights(base), *trained[:2]]
    assert begun == ([weights(base)] * 3 if restart else sampled)
    assert len({weights(base), *trained}) == 4


def test_a_finished_bootstrap_is_left_alone(unbroken: Path, base: Path, monkeypatch) -> None:
    before = {path: path.stat().st_mtime_ns for path in unbroken.rglob("*") if path.is_file() and path.name != ".lock"}
    for name in ("harvest", "train", "write_json", "write_jsonl"):
        monkeypatch.setattr(loop, name, None)
    bootstrap(unbroken, SMALL, base, SETS)
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_what_was_sampled_is_not_sampled_again(unbroken: Path, base: Path, tmp_path: Path, monkeypatch) -> None:
    def stopped(*arguments):
        raise Stopped

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(loop, "train", stopped)
        bootstrap(tmp_path / "boot", replace(SMALL, rounds=1), base, SETS)
    monkeypatch.setattr(loop, "harvest", None)
    bootstrap(tmp_path / "boot", replace(SMALL, rounds=1), base, SETS)
    assert accounts(tmp_path / "boot") == accounts(unbroken)[:1]


class Stopped(BaseException):
    """As KeyboardInterrupt: nothing that catches ``Exception`` catches it."""


STAGES = {
    loop: ("write_json", "write_jsonl", "harvest", "train", "open_run"),
    training: ("draw", "save_weights", "save_checkpoint", "write_environment", "evaluate"),
}


def attempt(folder: Path, base: Path, place: int, after: bool) -> bool:
    """Whether the bootstrap came to an end before its ``place``-th effect, counted over all of them."""
    counted = itertools.count()

    def stopping(work, *arguments, **named):
        here = next(counted)
        if here == place and not after:
            raise Stopped
        result = work(*arguments, **named)
        if here == place:
            raise Stopped
        return result

    with pytest.MonkeyPatch.context() as patch:
        for module, names in STAGES.items():
            for name in names:
                patch.setattr(module, name, partial(stopping, getattr(module, name)))
        try:
            bootstrap(folder, SMALL, base, SETS)
        except Stopped:
            return False
    return True


@pytest.mark.parametrize("after", [False, True])
def test_a_stop_anywhere_changes_nothing(unbroken: Path, base: Path, tmp_path: Path, after: bool) -> None:
    expected = told(unbroken)
    for place in itertools.count():
        folder = tmp_path / str(place)
        if attempt(folder, base, place, after):
            break
        assert told(folder) != expected or after
        bootstrap(folder, SMALL, base, SETS)
        found = told(folder)
        assert found.keys() == expected.keys(), f"files after a stop at {place}"
        assert all(found[name] == expected[name] for name in found), f"a stop at {place}"
    assert place > 25


def test_rounds_differ_in_nothing_but_their_draws(base: Path, tmp_path: Path) -> None:
    """The pool is the same every round; a policy that stays as it is draws anew."""
    folder = bootstrap(tmp_path / "boot", replace(SMALL, learning_rate=1e-12, keep=None, rationalize=False), base)
    one, two = (list(iter_jsonl(folder / f"round-{r}" / "corpus.jsonl")) for r in (1, 2))
    assert one != two
    other = bootstrap(tmp_path / "other", replace(SMALL, rounds=1, seed=6), base)
    assert {row["prompt"] for row in iter_jsonl(other / "round-1" / "corpus.jsonl")} != {row["prompt"] for row in one}


# ── Settings ────────────────────────────────────────────────────────────────────────────────


def test_other_settings_are_refused_by_name(unbroken: Path, base: Path, tmp_path: Path) -> None:
    before = told(unbroken)
    with pytest.raises(ValueError, match="holds another bootstrap: its keep, learning_rate differ"):
        bootstrap(unbroken, replace(SMALL, keep=3, learning_rate=1e-3), base, SETS)
    with pytest.raises(ValueError, match="its base folder differ"):
        bootstrap(unbroken, SMALL, None, SETS)
    assert told(unbroken) == before
    with pytest.raises(ValueError, match="holds a training run"):
        bootstrap(base, SMALL, base)


def test_nothing_right_is_an_end_with_words(base: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(harvesting, "_right", lambda *arguments: [])
    with pytest.raises(ValueError, match=r"round 1: none of 144 completions of 24 problems was right"):
        bootstrap(tmp_path / "boot", SMALL, base)
    assert not list((tmp_path / "boot").rglob("*.jsonl"))


WRONG = {
    "rounds": 0,
    "problems": 2.5,
    "samples": True,
    "temperature": -1,
    "rationalize": "yes",
    "keep": 0,
    "growth": 0,
    "epochs": 0,
    "steps": 0,
    "learning_rate": "fast",
    "schedule": "linear",
    "task": "chess",
    "base": 3,
    "difficulty": 4,
    "seed": 1.5,
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_is_named(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} .*accepted"):
        with_settings(SMALL, {name: WRONG[name]})


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="samples = 3; accepted: 1 at temperature 0"):
        replace(SMALL, temperature=0.0)
    for both in ({"epochs": 2.0, "steps": 3}, {"epochs": None, "steps": None}):
        with pytest.raises(ValueError, match="steps or epochs"):
            replace(SMALL, **both)
    with pytest.raises(ValueError, match="task echo poses no problem with a hint"):
        with_settings(BOOTSTRAPS["star"], {"task": "echo", "difficulty": {}, "base": None})
    with pytest.raises(ValueError, match="unknown setting 'rouds'"):
        with_settings(SMALL, {"rouds": 3})


def test_steps_grow_as_published_and_epochs_follow_the_corpus() -> None:
    star = replace(SMALL, steps=40, growth=1.2)
    assert [star.steps_of(number, 99) for number in range(1, 6)] == [40, 48, 57, 69, 82]  # int(40 * 1.2^(n-1))
    assert replace(SMALL, steps=100, growth=1.15).steps_of(2, 0) == 115  # 114.99999999999999 in floats
    epochs = with_settings(SMALL, {"epochs": 3, "prompts_per_step": 32})
    assert epochs.steps is None and [epochs.steps_of(1, rows) for rows in (320, 330, 3)] == [30, 30, 1]


def test_epochs_reach_the_run(base: Path, tmp_path: Path) -> None:
    folder = bootstrap(tmp_path / "boot", with_settings(SMALL, {"epochs": 2, "rounds": 1}), base)
    (account,) = accounts(folder)
    assert account["updates"] == 2 * account["kept"] // 4


def test_the_rows_are_those_of_the_papers() -> None:
    star, rft, rest_em = (BOOTSTRAPS[name] for name in ("star", "rft", "rest_em"))
    assert (star.samples, star.temperature, star.rationalize, star.restart, star.growth) == (1, 0.0, True, True, 1.2)
    assert replace(BOOTSTRAPS["star_no_rationalization"], rationalize=True) == star
    assert replace(BOOTSTRAPS["star_continue"], restart=True) == star
    assert (rft.rounds, rft.samples, rft.temperature, rft.distinct, rft.with_gold) == (1, 100, 0.7, True, True)
    assert (rest_em.samples, rest_em.temperature, rest_em.keep, rest_em.restart) == (32, 0.7, 10, True)
    assert not (rest_em.rationalize or rest_em.distinct or rest_em.with_gold)
    assert BOOTSTRAPS.keys() == loop.ABOUT.keys()


# ── The command ─────────────────────────────────────────────────────────────────────────────

COMMAND = "bootstrap rest_em --task echo --rounds 2 --problems 40 --samples 8 --steps 5"


def test_the_command_prints_what_each_round_reached_and_cost(tmp_path: Path, capsys) -> None:
    folder = tmp_path / "boot"
    assert main([*COMMAND.split(), "--out", str(folder), "--set", "keep=2", "temperature=1"]) == 0
    out = capsys.readouterr().out
    assert [len(line.split()) for line in out.splitlines() if line.split()[:1] in (["start"], ["1"], ["2"])] == [
        2,
        6,
        6,
    ]
    assert max(map(len, out.splitlines()[:-1])) <= 80
    assert read_json(folder / "bootstrap.json")["settings"]["keep"] == 2
    assert main([*COMMAND.split(), "--out", str(folder)]) == 2
    error = capsys.readouterr().err
    assert "its temperature, keep differ" in error and error.strip().count("\n") <= 1


def test_the_command_starts_from_the_hinted_base(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(pretrain, "BASES", {"cot_hint": BASE})
    monkeypatch.chdir(tmp_path)
    words = "bootstrap star --rounds 1 --problems 24 --steps 2 --difficulty n=2,3 k=1,2"
    assert main(words.split()) == 0
    config = store.read_config(tmp_path / "runs" / "star-pointer-s0" / "round-1" / "train")
    assert config["base"].startswith("cot_hint-s0-") and config["recipe"]["difficulty"] == {"n": [2, 3], "k": [1, 2]}


def test_help_says_what_the_command_does(capsys) -> None:
    assert main(["bootstrap", "--help"]) == 0
    out = capsys.readouterr().out
    for name in (*BOOTSTRAPS, "--rounds", "--temperature", "--set", "--out"):
        assert name in out


MISTAKES = {
    "bootstrap": "Missing",
    "bootstrap stra": "'stra' is unknown; accepted: star",
    "bootstrap star --rounds 0": "rounds = 0",
    "bootstrap star --samples 3": "1 at temperature 0",
    "bootstrap star --set rationalise=true": "unknown setting 'rationalise'",
    "bootstrap star --set keep": "key=value",
    "bootstrap star --set keep=many": "keep = 'many'",
    "bootstrap star --difficulty n=3,40": "(3, 40)",
    "bootstrap star --task echo": "rationalize = True",
    "bootstrap rft --base nothing": "nothing",
}


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_is_one_line_that_names_it(words: str, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == 2
    error = capsys.readouterr().err
    assert error.startswith("rlvr: ") and error.count("\n") == 1 and MISTAKES[words] in error
    assert not any(tmp_path.rglob("*.safetensors"))
