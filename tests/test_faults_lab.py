"""Public faults that show only where pieces meet: sampling, rewards, metrics and the training step."""

from dataclasses import replace

import pytest
import torch
from test_brief import row
from test_step import Table, batch, random_policy, table_rollouts
from torch import nn

from rlvr.lab.brief import Supplies, brief
from rlvr.lab.metrics import step_metrics
from rlvr.policy import Decoding


def test_b22_within_groups_and_over_the_batch_are_two_metrics() -> None:
    """Groups (1, 1) and (0, 0): no spread within, a sample standard deviation of 0.5774 over all four."""
    metrics = step_metrics(table_rollouts([1] * 4, [[1.0, 1.0], [0.0, 0.0]]))
    assert metrics["reward_std/group"] == 0.0
    assert metrics["reward_std/batch"] == pytest.approx(0.5774, abs=5e-5)


def test_b40_padding_is_in_no_estimate() -> None:
    """Log-probabilities −0.5, −1.5 and, on the padding, +1: the estimate over the row is −2, per token −1."""
    old = torch.tensor([[-0.5, -1.5, 1.0]])
    rollouts, algorithm = table_rollouts([2], [[1.0]], old, width=3), row("rloo", kl__coef=0.1)
    found = brief(Table(old), rollouts, algorithm, Decoding(), Supplies(Table(torch.zeros(1, 3))))
    assert found.measured == pytest.approx({"kl": -1.0, "kl/sequence": -2.0})
    samples = rollouts.samples._replace(entropies=torch.tensor([[0.5, 1.5, -1.0]]))
    assert step_metrics(replace(rollouts, samples=samples))["entropy"] == pytest.approx(1.0)


def test_b52_nothing_in_the_policy_differs_between_sampling_and_training() -> None:
    """There is no dropout: scores in training mode are those in evaluation mode, to the last bit."""
    policy = random_policy()
    assert not [m for m in policy.model.modules() if isinstance(m, nn.Dropout | nn.modules.batchnorm._BatchNorm)]
    rollouts, found = batch(policy), []
    for mode in (True, False):
        policy.model.train(mode)
        index = torch.arange(len(rollouts.texts)) // rollouts.group_size
        asked = (rollouts.problems, index, rollouts.samples.tokens, rollouts.samples.mask)
        found.append(policy.score(*asked, Decoding()).logps)
    assert torch.equal(*found)
