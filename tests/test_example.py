"""The one-file example is bound to the library: same weights, problems and draws give the same texts and losses."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

from rlvr.algo import preset
from rlvr.lab.rollout import collect, demonstrate
from rlvr.lab.step import update
from rlvr.policy import Decoding, LabPolicy
from rlvr.rewards import correct
from rlvr.rng import generator
from rlvr.tasks import Pointer

PATH = Path(__file__).resolve().parent.parent / "examples" / "grpo_in_one_file.py"
TASK = Pointer()
WORDS = ("accuracy", "thinks")
SMALL = {"n": (2, 3), "k": (1, 2)}  # small enough that guesses are right often, so that groups are mixed


@pytest.fixture(scope="module")
def page():
    spec = importlib.util.spec_from_file_location(PATH.stem, PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def twins(page, width: int = 64) -> tuple[LabPolicy, torch.nn.Module]:
    policy = LabPolicy.create(TASK.alphabet, TASK.eos, seed=0, width=width)
    model = page.Model(width)
    model.load_state_dict(policy.model.state_dict())
    return policy, model


def both(page, purpose: str, count: int, **difficulty):
    """The same problems in the words of either."""
    theirs = [TASK.problem(generator(0, purpose, i), **difficulty) for i in range(count)]
    return theirs, [page.make_problem(generator(0, purpose, i), **difficulty) for i in range(count)]


def adam(parameters, rate: float) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=rate, betas=(0.9, 0.95), weight_decay=0.0)


def test_the_page_is_flat_and_short() -> None:
    text = PATH.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 150
    assert "rlvr" not in text


def test_same_world(page) -> None:
    assert TASK.alphabet == page.ALPHABET
    for theirs, ours in zip(*both(page, "world", 200, n=(2, 16), k=(1, 9)), strict=True):
        assert (ours.prompt, ours.offset) == (theirs.prompt, theirs.meta["offset"])
        assert (page.demonstrate(ours), ours.limit) == (TASK.gold(theirs), TASK.limit(theirs))
        assert page.demonstrate(ours, think=False) == TASK.direct(theirs)


def test_same_verifier(page) -> None:
    theirs, ours = both(page, "verifier", 300, n=(4, 4), k=(1, 3))
    draw, rewards = generator(0, "texts"), set()
    for problem, twin in zip(theirs, ours, strict=True):
        letters = twin.prompt[:2] + "|$"
        for text in ("", "|", twin.chain, "".join(draw.choice(list(letters), 6)), page.demonstrate(twin)):
            assert page.reward(twin, text) == float(TASK.verify(problem, text).correct)
            rewards.add((text.count("|") > 1, page.reward(twin, text)))
    assert rewards == {(False, 0.0), (False, 1.0), (True, 0.0), (True, 1.0)}


def test_same_mind(page) -> None:
    policy, model = twins(page)
    tokens = torch.from_numpy(generator(0, "tokens").integers(0, len(TASK.alphabet), (3, 11)))
    offsets = torch.tensor([0, 5, TASK.max_offset])
    torch.testing.assert_close(model(tokens, offsets), policy.model(tokens, offsets), rtol=1e-12, atol=1e-12)


def test_same_initialisation_law(page) -> None:
    policy, _ = twins(page)
    expected = {name: weight.detach() for name, weight in policy.model.named_parameters()}
    for name, weight in page.Model().named_parameters():
        if weight.dim() == 2:
            assert float(weight.detach().std()) == pytest.approx(float(expected[name].std()), rel=0.1), name
        else:
            assert torch.equal(weight, expected[name]), name


def test_same_losses_in_sft_and_grpo(page) -> None:
    policy, model = twins(page, width=32)
    losses, signals = [], 0
    optimizers = [adam(mind.parameters(), 3e-3) for mind in (policy.model, model)]
    for step in range(40):
        theirs, ours = both(page, f"sft {step}", 8, **SMALL)
        rollouts = demonstrate(policy, TASK, theirs)
        expected = update(policy, optimizers[0], rollouts, preset("sft"), Decoding(), 1.0).metrics["loss"]
        found = page.learn(model, optimizers[1], ours, [page.demonstrate(p) for p in ours], torch.ones(8))
        losses.append((found, expected))
    optimizers = [adam(mind.parameters(), 1e-3) for mind in (policy.model, model)]
    for step in range(8):
        theirs, ours = both(page, f"grpo {step}", 8, **SMALL)
        draws = generator(0, "draws", step).random((8 * 6, max(p.limit for p in ours)))
        paid = {"correct": (1.0, correct)}
        rollouts = collect(policy, TASK, theirs, paid, draws, Decoding(), generator(0, "reward"))
        expected = update(policy, optimizers[0], rollouts, preset("grpo_lecture"), Decoding(), 1.0).metrics
        found = page.grpo_step(model, optimizers[1], ours, draws)
        losses.append((found, expected["loss"]))
        signals += expected["rows_scored"] > 0
    found, expected = np.array(losses).T
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    assert signals >= 5 and np.abs(expected[-8:]).max() > 1e-3


def test_same_texts_from_the_same_draws(page) -> None:
    policy, model = twins(page)
    theirs, ours = both(page, "texts", 6, n=(4, 8), k=(1, 5))
    draws = generator(0, "texts").random((6 * 5, max(p.limit for p in ours)))
    samples = policy.sample(theirs, 5, draws, [p.limit for p in ours])
    expected = [policy.decode(row[keep].tolist()) for row, keep in zip(samples.tokens, samples.mask, strict=True)]
    found = page.sample(model, [p for p in ours for _ in range(5)], draws)
    assert found == expected
    _, logps = page.read(model, [p for p in ours for _ in range(5)], found)
    for b, text in enumerate(found):
        place = torch.arange(len(text)) + len(ours[b // 5].prompt) - 1
        read = logps[b, place, [page.ALPHABET.index(letter) for letter in text]]
        torch.testing.assert_close(read, samples.logps[b, : len(text)], rtol=1e-12, atol=1e-12)


def test_the_page_runs(page, capsys) -> None:
    torch.set_default_dtype(torch.float32)
    page.main(think_steps=1, blurt_steps=1, grpo_steps=5)
    printed = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    assert printed == [["demonstrations", "2"], ["GRPO", "5"]]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_page_keeps_its_promise(page, capsys, seed: int) -> None:
    """Measured on seeds 0-4: 22, 18, 24, 26, 23 % before GRPO and 94, 96, 99, 97, 98 % after it."""
    torch.set_default_dtype(torch.float32)
    page.main(seed=seed)
    lines = capsys.readouterr().out.splitlines()
    before, after = ([line for line in lines if line.startswith(name)][-1] for name in ("demonstrations", "GRPO"))
    right, thinks = ([int(line.split(word)[1].split("%")[0]) for line in (before, after)] for word in WORDS)
    assert right[0] < 40 and right[1] > 90
    assert thinks[0] < 25 and thinks[1] > 95
