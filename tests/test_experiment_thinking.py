"""Experiment 03: bases in two stages, exact habits, the model of the wait, its rules on made-up results, and a smoke run."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from rlvr.experiments import Plan, Results, run_experiment
from rlvr.experiments import thinking_rules as rules
from rlvr.experiments.panels import as_data
from rlvr.experiments.runner import results_of
from rlvr.experiments.thinking import THINKING
from rlvr.experiments.thinking_model import expected_wait, predicted_steps
from rlvr.experiments.thinking_panels import answer, panels
from rlvr.experiments.thinking_work import chain_probability, first_words
from rlvr.lab import pretrain, store
from rlvr.lab.lock import run_lock
from rlvr.lab.recipe import Recipe
from rlvr.lab.train import train
from rlvr.policy import LabPolicy
from rlvr.rng import generator
from rlvr.tasks import Pointer

TASK = Pointer()
SEEDS, STEPS = (0, 1, 2), 60
TINY = {"shape": {"width": 16, "heads": 2}, "prompts_per_step": 4, "steps": 2, "checkpoint_every": 2}


# ── Bases in two stages ──────────────────────────────────────────────────────────────────────────────


def test_a_second_stage_starts_where_the_first_ended(tmp_path, monkeypatch) -> None:
    first = Recipe(preset="sft", base=None, difficulty={"n": 4, "chains": 0.5}, **TINY)
    second = replace(first, base="first", difficulty={"n": 4, "chains": 0.0}, learning_rate=1e-12)
    monkeypatch.setattr(pretrain, "BASES", {"first": first, "second": second})
    made = pretrain.make_base("second", pretrain.base_recipe("second", 3), tmp_path)
    parent = pretrain.base_folder("first", pretrain.base_recipe("first", 3), tmp_path)
    assert store.read_config(made)["base"] == parent.name and store.is_finished(parent)
    ended, went_on = weights(parent), weights(made)
    assert all(torch.allclose(ended[name], went_on[name], atol=1e-8) for name in ended)
    # What the first stage is made of tells second stages apart.
    monkeypatch.setattr(pretrain, "BASES", {"first": replace(first, steps=3), "second": second})
    assert pretrain.base_folder("second", pretrain.base_recipe("second", 3), tmp_path) != made


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def test_the_registered_stages_differ_in_chains_alone() -> None:
    recipes = [pretrain.BASES[name] for name in ("think10", "think2", "think0")]
    shares = [recipe.difficulty["chains"] for recipe in recipes]
    assert shares == [0.10, 0.02, 0.0] and {recipe.base for recipe in recipes} == {"think_stage1"}
    assert len({replace(recipe, difficulty={}).digest() for recipe in recipes}) == 1
    assert pretrain.BASES["noskill"].difficulty["chains"] == 0.0 and pretrain.BASES["noskill"].base is None
    assert pretrain.BASES["noskill"].steps == recipes[0].steps + pretrain.BASES["think_stage1"].steps


def test_a_step_logs_the_mean_traits_of_its_completions(tmp_path) -> None:
    recipe = Recipe(base=None, difficulty={"n": (4, 6), "k": (1, 3)}, record=(0, 1), group_size=4, **TINY)
    run = train(tmp_path / "run", recipe)
    rows, metrics = store.read_rollouts(run).to_pylist(), store.read_metrics(run)
    for step in (0, 1):
        source = generator(0, "problems", step)
        problems = {p.prompt: p for p in [TASK.problem(source, **recipe.difficulty) for _ in range(4)]}
        found = [TASK.traits(problems[row["prompt"]], row["completion"]) for row in rows if row["step"] == step]
        for name in ("thinks", "needed", "over_run", "tail"):
            assert metrics[step][f"traits/{name}"] == pytest.approx(np.mean([each[name] for each in found]))
    assert 0 < metrics[0]["traits/thinks"] < 1


# ── Exact habits ─────────────────────────────────────────────────────────────────────────────────────


def test_first_words_and_chains_are_products_of_plain_forward_passes() -> None:
    policy = LabPolicy.create(TASK.alphabet, TASK.eos, seed=2, width=16, heads=2)
    problems = [TASK.problem(generator(0, "exact", i), n=5, k=1 + i % 3) for i in range(4)]
    thinks, direct = first_words(policy, problems)
    chain = chain_probability(policy, problems)
    for p, problem in enumerate(problems):
        assert thinks[p] == pytest.approx(
            sum(slowly(policy, problem, letter) for letter in TASK.alphabet[:16]), rel=1e-4
        )
        assert direct[p] == pytest.approx(slowly(policy, problem, f"|{problem.answer}"), rel=1e-4)
        assert chain[p] == pytest.approx(slowly(policy, problem, TASK.gold(problem)[:-1]), rel=1e-4)


@torch.no_grad()
def slowly(policy: LabPolicy, problem, text: str) -> float:
    """P(a completion begins with the text), token by token from the logits of one whole pass."""
    prompt, tokens = policy.encode(problem.prompt), policy.encode(text)
    logits = policy.model(torch.tensor([prompt + tokens]), torch.tensor([problem.meta["offset"]]))[0].double()
    shares = torch.softmax(logits, -1)
    return float(np.prod([shares[len(prompt) - 1 + i, token] for i, token in enumerate(tokens)]))


# ── The model of the wait ────────────────────────────────────────────────────────────────────────────


def test_the_wait_is_that_of_a_simulation_step_by_step() -> None:
    thinks, useful, drawn, gain, mark = 4e-4, 2e-4, 64, 0.5, 0.05
    source, waits = np.random.default_rng(0), []
    needed = np.ceil((np.log(mark / (1 - mark)) - np.log(thinks / (1 - thinks))) / gain)
    for _ in range(400):
        hits, step = 0, 0
        while hits < needed:
            # Several in one step are rare here; the growth counts from the next one.
            hits += source.binomial(drawn, useful * np.exp(gain * hits))
            step += 1
        waits.append(step)
    expected = expected_wait(thinks, useful, mark, drawn, gain)
    assert np.mean(waits) == pytest.approx(expected, rel=0.1)
    drawn_waits = predicted_steps(thinks, useful, mark, drawn, 20_000, np.random.default_rng(1), gain)
    assert drawn_waits.mean() == pytest.approx(expected, rel=0.02)
    assert drawn_waits.std() == pytest.approx(np.std(waits), rel=0.15)
    # Without a gain there is no growth to wait for less: twice the habit waits half as long for each.
    assert expected_wait(thinks, 2 * useful, mark, drawn, gain) == pytest.approx(expected / 2)


@pytest.mark.parametrize(("thinks", "useful"), [(0.0, 0.0), (0.1, 0.2), (1.0, 0.5), (0.1, -0.1)])
def test_impossible_habits_are_refused(thinks: float, useful: float) -> None:
    with pytest.raises(ValueError, match="accepted: 0 < useful <= thinks < 1"):
        expected_wait(thinks, useful, 0.05, 256)


# ── Rules on made-up results ─────────────────────────────────────────────────────────────────────────

HOPS = np.tile(np.arange(1, 8), 4)
RISES = {"think10": (2, 3, 2), "think2": (6, 7, 6), "think0": (9, 14, 21, 12, 30, 17, 10, 25, 13, 19)}
FREE, GIVEN_UP = [1.0] * 7, [1.0] + [0.12] * 6
RIGHT = {"noskill": [0.12] * 7, "price_0.15": [0.95] * 5 + [0.15] * 2, "price_0.2": GIVEN_UP, "price_0.3": GIVEN_UP}
HABITS = {"think10": 0.1, "think2": 0.02, "think0": 2.5e-3, "noskill": 1e-6}


class Made(Results):
    """Results in which the lecture's world comes true; ``changes`` replaces (arm, key) by what a function of the seed gives."""

    def changed(self, arm: str, key: str, seed: int, default: Any) -> Any:
        change = self.changes.get((arm, key))
        return default if change is None else change(seed)

    def metrics(self, arm: str, key: str, steps: int | None = None) -> np.ndarray:
        return np.array([np.broadcast_to(self._row(arm, key, seed), STEPS) for seed in self.arm_seeds(arm)])

    def _row(self, arm: str, key: str, seed: int) -> Any:
        thinks = np.arange(STEPS) >= RISES[arm][seed] if arm in RISES else np.zeros(STEPS)
        table = {
            "traits/thinks": 0.02 + 0.98 * thinks,
            "accuracy": 0.0 if arm == "noskill_std" else 0.12,
            "traits/tail": 4.0 if arm == "think2" else 0.01,
            "traits/over_run": 0.0,
            "traits/needed": 4.0 * thinks,
            "completions/mean_length": 1.0 if arm == "noskill_std" else 3.0 + 4.0 * thinks,
        }
        return self.changed(arm, key, seed, table[key]) + 1e-4 * seed

    def final(self, arm: str, seed: int, label: str, name: str = "greedy") -> dict[str, list[Any]]:
        right = np.array(self.changed(arm, "right", seed, RIGHT.get(arm, FREE)))[HOPS - 1]
        thinks = self.changed(arm, "share", seed, 0.0 if arm in ("price_0.3", "base_think0") else 0.97)
        letters = HOPS + self.changed(arm, "excess", seed, 0.0)
        columns = {"k": HOPS, "samples": np.full(28, 16), "correct": 16 * right - 1e-3 * seed, "kinds": [{}] * 28}
        columns |= {"traits/thinks": np.full(28, thinks), "traits/needed": letters, "traits/over_run": np.zeros(28)}
        return {key: list(values) for key, values in columns.items()}

    def result(self, job: str) -> dict[str, Any]:
        base, seed = job.removeprefix("habit-").rsplit("-s", 1)
        habit = self.changed(base, "habit", int(seed), 1e-4 if base == "think0" else HABITS[base]) * (
            1 + 0.1 * int(seed)
        )
        direct = self.changed(base, "direct", int(seed), np.where(HOPS == 1, 1.0, 0.12)) * (1 - habit)
        columns = {"k": HOPS, "thinks": np.full(28, habit), "direct": direct, "chain": np.full(28, 0.9 * habit)}
        return {problems: {key: list(values) for key, values in columns.items()} for problems in ("own", "n8")}


def made(seeds: tuple[int, ...] = SEEDS, **changes) -> Made:
    """``think2__right`` changes what arm think2 has under "right"; of a name with a dot the change is given as a pair."""
    results = Made(Path("nowhere"), seeds, {"think0": tuple(range(10))} if len(seeds) > 1 else {})
    pairs = {tuple(name.split("__")): change for name, change in changes.items()}
    object.__setattr__(results, "changes", pairs)
    return results


def verdict(rule: str, seeds: tuple[int, ...] = SEEDS, **changes) -> str:
    return getattr(rules, rule)(made(seeds, **changes)).verdict


def always(value: Any):
    return lambda seed: value


RISEN = always(np.ones(STEPS))
CASES = [
    ("base_habit", {}, "holds"),
    ("base_habit", {"think2__habit": always(0.2)}, "differs"),
    ("base_habit", {"think0__habit": lambda seed: 0.0019 if seed == 1 else 1e-4}, "differs"),
    ("base_habit", {"think10__habit": always(0.01)}, "differs"),
    ("direct_fails", {}, "holds"),
    ("direct_fails", {"think2__direct": always(np.full(28, 0.6))}, "differs"),
    ("direct_fails", {"think2__direct": lambda seed: np.full(28, 0.2 * seed)}, "undecided"),
    ("rl_selects", {}, "holds"),
    ("rl_selects", {"think0__share": always(0.3)}, "differs"),
    ("rl_selects", {"think2__right": always([0.5] * 7)}, "differs"),
    ("rl_selects", {"think10__excess": always(1.0)}, "differs"),
    ("rl_selects", {"think10__excess": always(-1.0)}, "differs"),
    ("rl_selects", {"think10__share": lambda seed: 0.9 + 0.1 * (seed - 1)}, "undecided"),
    ("no_skill_no_gain", {}, "holds"),
    ("no_skill_no_gain", {"noskill__accuracy": always(np.linspace(0.1, 0.9, STEPS))}, "differs"),
    ("aha_is_chance", {}, "holds"),
    ("aha_is_chance", {"think0__traits/thinks": RISEN}, "differs"),
    ("aha_is_chance", {"think2__traits/thinks": lambda seed: np.arange(STEPS) >= 9 * seed}, "undecided"),
    ("unchecked_drifts", {}, "holds"),
    ("unchecked_drifts", {"think2__traits/tail": always(0.2)}, "differs"),
    ("format_check_holds", {}, "holds"),
    ("format_check_holds", {"think2_gate__traits/over_run": always(0.5)}, "differs"),
    ("format_check_holds", {"think2_gate__right": always([0.8] * 7)}, "differs"),
    ("length_penalty_hardest_first", {}, "holds"),
    ("length_penalty_hardest_first", {"price_0.15__right": always(FREE)}, "differs"),
    ("length_penalty_hardest_first", {"price_0.15__right": always([0.6] * 4 + [0.2] + [0.0] * 2)}, "differs"),
    ("length_penalty_hardest_first", {"price_0.3__share": always(0.5)}, "differs"),
    ("length_penalty_same_price", {}, "differs"),
    ("length_penalty_same_price", {"price_0.2__right": always([1.0] * 5 + [0.1] * 2)}, "holds"),
    ("std_amplifies", {}, "holds"),
    ("std_amplifies", {"noskill_std__completions/mean_length": always(3.0)}, "differs"),
    ("std_amplifies", {"noskill_std__accuracy": always(0.12)}, "differs"),
]


@pytest.mark.parametrize(
    ("rule", "changes", "wanted"), CASES, ids=[f"{c[0]}-{'-'.join(c[1]) or 'as told'}" for c in CASES]
)
def test_every_rule_can_hold_and_differ(rule: str, changes: dict, wanted: str) -> None:
    assert verdict(rule, **changes) == wanted


def test_waits_that_the_model_predicts_hold_and_others_differ() -> None:
    expected = np.mean([waits.mean() for waits in rules.predicted_waits(made(think0__habit=always(2.5e-3)))])
    assert 5 < expected < 40  # the made-up runs wait 17 steps
    assert verdict("aha_predicted", think0__habit=always(2.5e-3 * expected / 17)) == "holds"
    assert verdict("aha_predicted", think0__habit=always(0.04)) == "differs"


@pytest.mark.parametrize("rule", sorted({case[0] for case in CASES} | {"aha_predicted"}))
def test_one_seed_decides_nothing(rule: str) -> None:
    assert verdict(rule, seeds=(0,)) in ("undecided", "differs" if rule == "length_penalty_same_price" else "undecided")


def test_first_steps_are_those_of_the_log() -> None:
    found = rules.first_at(made(), "think2", 0.5)
    assert found.tolist() == [6, 7, 6] and np.isnan(rules.first_at(made(), "noskill", 0.5)).all()


# ── A smoke run ──────────────────────────────────────────────────────────────────────────────────────


def test_all_of_it_runs_small(tmp_path) -> None:
    bases = {name: replace(recipe, base=None, **TINY) for name, recipe in THINKING.bases.items()}
    few = {"steps": 3, "prompts_per_step": 4, "group_size": 2, "checkpoint_every": 2, "record": (0, 2)}
    arms = {arm: replace(recipe, **few) for arm, recipe in THINKING.arms.items()}
    small = replace(
        THINKING, bases=bases, arms=arms, problems_per_hop=1, samples=2, seeds=(0,), seeds_of={"think0": (0, 1)}
    )
    summary, results = results_of(run_experiment(small, Plan(tmp_path, jobs=2)))
    assert [claim["id"] for claim in summary["claims"]] == [claim.id for claim in THINKING.claims]
    assert all(claim["verdict"] in ("holds", "differs", "undecided") for claim in summary["claims"])
    assert len(results.result("habit-think0-s1")["own"]["thinks"]) == 280
    shown = [as_data(panel) for panel in panels(results)]
    assert [panel["type"] for panel in shown] == ["lines", "lines", "table", "bars", "lines", "lines", "lines", "texts"]
    parts = dict(shown[3]["rows"])["step 0"]
    assert sum(parts.values()) == pytest.approx(results.metrics("think2", "completions/mean_length")[:, 0].mean())
    assert answer(results).startswith("It selects.")


def test_a_finished_base_is_read_while_another_run_reads_it_too(tmp_path: Path) -> None:
    """Two second stages begin at once: neither may hold the other up at the first stage that both start from."""
    tiny = {"steps": 2, "prompts_per_step": 2, "shape": {"width": 16, "heads": 2}, "checkpoint_every": 2}
    first = replace(pretrain.BASES["think_stage1"], **tiny)
    folder = pretrain.make_base("think_stage1", first, tmp_path)
    with run_lock(folder):
        assert pretrain.make_base("think_stage1", first, tmp_path) == folder
