"""The calibrated properties of the shipped base model, trained here from its recipe: three seeds, about a minute."""

import itertools
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from rlvr.lab.evaluate import evaluate
from rlvr.lab.pretrain import BASES, base_recipe, make_base
from rlvr.lab.testsets import pointer_sets
from rlvr.lab.train import open_run
from rlvr.policy import Decoding
from rlvr.tasks import Pointer

pytestmark = pytest.mark.slow

TASK = Pointer()
SEEDS = (0, 1, 2)
SIZES = (8, 9, 10, 11, 12, 14, 16)
TRAINED_N = BASES["cot_L2"].difficulty["n"][1]


@dataclass(frozen=True)
class Base:
    """One base with what it does: columns of the greedy and of the sampled evaluation, and the seconds it cost."""

    greedy: dict[str, np.ndarray]
    sampled: dict[str, np.ndarray]
    seconds: float

    def accuracy(self, n: int) -> float:
        return float(self.greedy["correct"][self.greedy["n"] == n].mean())

    def kinds(self, n: int) -> Counter:
        chosen = (kinds for kinds, each in zip(self.greedy["kinds"], self.greedy["n"], strict=True) if each == n)
        return sum((Counter(kinds) for kinds in chosen), Counter())

    def reach(self) -> np.ndarray:
        """How many positions beyond the last one that training visited the demonstration of each problem ends.

        A prompt has three characters a pair and four more; the completion of k hops is as long at every n.
        """
        return self.greedy["offset"] + 3 * (self.greedy["n"] - TRAINED_N) - TASK.max_offset


def columns(evaluation: dict[str, Any]) -> dict[str, np.ndarray]:
    return {name: np.array(column) for name, column in evaluation["columns"].items()}


@pytest.fixture(scope="module")
def bases(tmp_path_factory) -> dict[int, Base]:
    assert torch.get_num_threads() == 1
    root, made = tmp_path_factory.mktemp("bases"), {}
    for seed in SEEDS:
        before = time.process_time()
        folder = make_base("cot_L2", base_recipe("cot_L2", seed), root)
        seconds = time.process_time() - before
        policy, _ = open_run(folder)
        greedy = evaluate(policy, TASK, pointer_sets(SIZES))
        sampled = evaluate(policy, TASK, pointer_sets((8, 12)), samples=32, decoding=Decoding())
        made[seed] = Base(columns(greedy), columns(sampled), seconds)
    return made


@pytest.fixture(params=SEEDS)
def base(bases, request) -> Base:
    return bases[request.param]


def test_training_takes_at_most_90_seconds_of_one_core(base: Base) -> None:
    """Measured: 22, 19, 19 s; of the processor, so that a busy machine fails nobody."""
    assert base.seconds <= 90


def test_n8_is_solved_and_n12_is_not(base: Base) -> None:
    """Measured: 100, 99.5, 99 % and 39.5, 46.5, 45 %."""
    assert base.accuracy(8) >= 0.98
    assert 0.15 <= base.accuracy(12) <= 0.65


def test_accuracy_falls_from_size_to_size(base: Base) -> None:
    """Measured, seed 0: 100, 94.5, 75.5, 56, 39.5, 10, 6.5 %."""
    shares = [base.accuracy(n) for n in SIZES]
    assert all(later <= earlier + 0.05 for earlier, later in itertools.pairwise(shares)), shares
    assert shares[0] - shares[-1] > 0.7


def test_it_is_nearly_deterministic_at_temperature_1(base: Base) -> None:
    """Measured: 0.0021, 0.0052, 0.0031 nats a token on n = 8."""
    eight = base.sampled["n"] == 8
    nats, tokens = (base.sampled[name][eight] for name in ("entropy", "length"))
    assert (nats * tokens).sum() / tokens.sum() < 0.06


def test_most_failures_on_n12_keep_every_hop_and_miss_the_stop(base: Base) -> None:
    """Measured: 97, 75 and 75 % of 121, 107 and 110 failures."""
    kinds = base.kinds(12)
    del kinds["correct"]
    assert sum(kinds[kind] for kind in TASK.stopping) > kinds.total() / 2, kinds


def test_a_vote_of_32_repairs_few_failures(base: Base) -> None:
    """Measured: 0 of 121, 1 of 107, 4 of 110."""
    right = base.greedy["correct"][base.greedy["n"] == 12]
    majority = base.sampled["majority"][base.sampled["n"] == 12]
    assert majority[right == 0].mean() < 1 / 3


def test_it_is_right_within_the_positions_of_its_training_and_not_far_beyond(base: Base) -> None:
    """Measured over n = 9-16: 99.7, 99.0 and 96.1 % of 386 problems within; 10, 22.5 and 21.6 % of 661 that end more than
    three positions beyond."""
    longer, right, reach = base.greedy["n"] > TRAINED_N, base.greedy["correct"], base.reach()
    assert right[longer & (reach <= 0)].mean() >= 0.9
    assert right[longer & (reach > 3)].mean() <= 0.4


@pytest.mark.parametrize(
    "seed",
    [
        0,
        1,
        pytest.param(
            2, marks=pytest.mark.xfail(strict=False, reason="measured: 25 of 34, eight of the rest overshoot")
        ),
    ],
)
def test_the_positions_decide_on_n12_alone(bases, seed: int) -> None:
    """Measured: 34, 34 and 25 of 34 problems within; 27, 36 and 39 % of the 166 beyond. Seed 2 breaks the rule, as it does
    on the "dev" problems (34 of 45): it stops late even where every position was trained."""
    base = bases[seed]
    twelve, right, reach = base.greedy["n"] == 12, base.greedy["correct"], base.reach()
    assert (twelve & (reach <= 0)).sum() > 20
    assert right[twelve & (reach <= 0)].mean() >= 0.9
    assert right[twelve & (reach > 0)].mean() <= 0.5
