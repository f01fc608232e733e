"""Every fault of sections A to G and K of the project's list of public faults has tests named after it, and here are those
that belong to no other file: mathematics alone. `pytest -k b17` runs all that is known about fault B17.
"""

import math
import re
from pathlib import Path

import pytest
import torch

from rlvr.algo import K1, K3, Center, DifficultyBand, DropConstant, LeaveOneOut, ZScore, ratio_report
from rlvr.policy import Decoding

TESTS = Path(__file__).parent
SECTIONS = {
    "A. aggregation": "01 02 04 06 07 08",
    "B. advantages and groups": "10 11 12 13 15 17 18 20 22",
    "C. filters and dynamic sampling": "24 25 26 28 30 32",
    "D. ends, padding, truncation": "33 34 35 37 40 42 43",
    "E. log-probabilities and ratios": "45 46 47 48 51 52 53 55 57 58 59",
    "F. KL, reference, entropy": "60 62 63 65",
    "G. Clip-Cov, KL-Cov": "66",
    "K. format and length rewards": "103 107",
}


def named_faults(source: str) -> set[str]:
    names = re.findall(r"^def (test_\w+)", source, re.MULTILINE)
    return {number for name in names for number in re.findall(r"(?<=_b)\d{2,3}(?=_)", name)}


@pytest.mark.parametrize("section", SECTIONS)
def test_every_fault_has_a_test_of_its_name(section: str) -> None:
    found = set().union(*(named_faults(path.read_text("utf-8")) for path in TESTS.glob("test_*.py")))
    assert set(SECTIONS[section].split()) - found == set()


def test_the_rule_reads_names() -> None:
    assert named_faults("def test_b01_b17_x():\n    # test_b18_y\ndef helper_b19_z(): ...") == {"01", "17"}


def test_b17_a_constant_rest_scales_nothing() -> None:
    """0 beside seven 0.7s in float32: −0.7 and 0.1, and with a standard deviation still below 10."""
    rewards = torch.tensor([[0.0] + [0.7] * 7])
    assert LeaveOneOut()(rewards)[0].tolist() == pytest.approx([-0.7, *[0.1] * 7], abs=1e-6)
    assert float(ZScore(eps=1e-6)(rewards).abs().max()) < 10
    assert float(ZScore(eps=1e-6)(torch.tensor([[1.0, 0.0, 0.0, 0.0]])).abs().max()) < 10


def test_b12_permuted_rows_permute_advantages() -> None:
    rewards = torch.tensor([[1.0, 0.0, 0.25, 0.5]])
    for order in ([2, 0, 3, 1], [3, 2, 1, 0]):
        assert torch.equal(Center()(rewards[:, order]), Center()(rewards)[:, order])


@pytest.mark.parametrize("select", [DropConstant(by="reward"), DropConstant(), DifficultyBand(0.01, 0.99)], ids=str)
def test_b26_a_group_of_constant_scores_within_the_range_teaches_nothing(select) -> None:
    """Four scores of 0.5 and no answer right: dropped by what they are paid, by verdicts and by share alike."""
    scores = torch.full((1, 4), 0.5)
    assert not select(scores, scores > 0.5).any()


def test_b62_a_forced_sampler_shows_as_such_and_k3_stays_above_0() -> None:
    """A tie, top-k 1: whoever draws always draws one token. k1 is −0.40547; the gap between sampler and policy is ln 2."""
    policy, reference = (torch.tensor(p, dtype=torch.float64).log() for p in ((0.5, 0.5), (0.25, 0.75)))
    sampler = Decoding(top_k=1).log_probs(torch.tensor([0.5 - 1e-9, 0.5], dtype=torch.float64).log())[None, 1:]
    drawn = policy[None, 1:], reference[None, 1:]
    assert K1()(*drawn).item() == pytest.approx(-0.40547, abs=5e-6) and K3()(*drawn).item() >= 0
    report = ratio_report(drawn[0], sampler, torch.ones(1, 1, dtype=torch.bool))
    assert report.max_abs_difference == pytest.approx(math.log(2)) and report.token_ratios.item() == pytest.approx(0.5)
