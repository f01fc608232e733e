"""`make bench`: how fast the library is, as ratios to slower ways of doing the same, all measured in this one run.

One thread. What is compared takes turns, and the median of the turns counts, so that a busy machine slows both sides. The
base model is the one that `make reproduce` trains and keeps in runs/. Ends with an error when a ratio is missed.
"""

import importlib.util
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import against_trl
import plain
import torch
from rich.console import Console
from rich.table import Table

from rlvr.algo import preset
from rlvr.lab.evaluate import evaluate
from rlvr.lab.pretrain import BASES, base_folder, base_recipe, make_base
from rlvr.lab.recipe import Recipe
from rlvr.lab.rollout import Rollouts, collect
from rlvr.lab.step import update
from rlvr.lab.testsets import pointer_sets
from rlvr.lab.train import make_policy, open_run, train
from rlvr.policy import Decoding, LabPolicy
from rlvr.rewards import load_reward
from rlvr.rng import generator
from rlvr.tasks import TASKS
from rlvr.types import Problem

BASE = "cot_L2"
TASK = TASKS["pointer"]
PROMPTS, GROUP = 32, 8
DIFFICULTY = {"n": (4, 12), "k": (1, 7)}
# The longest demonstration: a Llama that has learned where to end never meets it, and nothing of a chain is cut off.
TRL_LIMIT = max(DIFFICULTY["k"]) + 3
ALGORITHM = preset("grpo_lecture")
ARMS = {"GRPO": "grpo_lecture", "RFT": "rft", "SFT": "sft"}
AT_LEAST = {"plain": 8.0, "trl": 15.0, "sampling": 100_000.0}


class Row(NamedTuple):
    """One line of the table and a note below it; without ``required`` it is for information."""

    what: str
    ours: str
    other: str = ""
    ratio: float | None = None
    required: float | None = None
    note: str = ""


class Learner:
    """A policy and its optimizer that can be put back to where it began."""

    def __init__(self, policy: LabPolicy) -> None:
        self.policy = policy
        self.start = {name: weight.clone() for name, weight in policy.model.state_dict().items()}
        self.optimizer = torch.optim.AdamW(policy.model.parameters(), lr=3e-4, betas=(0.9, 0.95), fused=True)

    def reset(self) -> None:
        self.policy.model.load_state_dict(self.start)

    def fast(self, problems: Sequence[Problem], step: int) -> tuple[Rollouts, float]:
        """The library's GRPO step: its completions and its loss."""
        paid = {"correct": (1.0, load_reward("correct"))}
        rollouts = collect(self.policy, TASK, problems, paid, draws(step), Decoding(), generator(0, "reward", step))
        result = update(self.policy, self.optimizer, rollouts, ALGORITHM, Decoding(), max_grad_norm=1.0)
        return rollouts, result.metrics["loss"]

    def slow(self, problems: Sequence[Problem], step: int) -> plain.PlainStep:
        """The same step without the shortcuts."""
        return plain.plain_step(self.policy, self.optimizer, TASK, problems, draws(step), ALGORITHM)


def batch(step: int) -> list[Problem]:
    """The problems of a step."""
    source = generator(0, "bench", step)
    return [TASK.problem(source, **DIFFICULTY) for _ in range(PROMPTS)]


def draws(step: int) -> Any:
    """The uniform numbers of a step; as many a completion as the longest may have tokens."""
    return generator(0, "bench draws", step).random((PROMPTS * GROUP, max(map(TASK.limit, batch(step)))))


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds and result."""
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def against_plain(policy: LabPolicy, what: str, turns: int, required: float | None = None) -> Row:
    """The fast and the plain step on the same batches from the same weights, in turns; both must write the same."""
    learner = Learner(policy)
    fast, slow, equal, completions = [], [], 0, 0
    for step in range(turns + 1):
        problems, found = batch(step), {}
        for name in ("fast", "slow") if step % 2 else ("slow", "fast"):
            learner.reset()
            seconds, found[name] = timed(partial(getattr(learner, name), problems, step))
            (fast if name == "fast" else slow).append(seconds)
        same = [ours == theirs for ours, theirs in zip(found["fast"][0].texts, found["slow"].texts, strict=True)]
        equal, completions = equal + sum(same), completions + len(same)
        if all(same) and abs(found["fast"][1] - found["slow"].loss) > 1e-4:
            raise SystemExit(f"bench: step {step}: losses {found['fast'][1]} and {found['slow'].loss} differ")
    # A rounding in float32 may tip a draw that falls on the edge between two tokens, one in many thousands.
    if equal < 0.995 * completions:
        raise SystemExit(f"bench: only {equal} of {completions} completions are those of the plain sampler")
    ours, other = (statistics.median(times[1:]) for times in (fast, slow))
    note = f"{what}: {equal} of {completions} completions are the same"
    return Row(what, f"{ours:.4f} s", f"{other:.3f} s", other / ours, required, note)


def against_trainer(policy: LabPolicy, turns: int) -> Row:
    """TRL's step and ours on the same prompts, in turns; a row that says so where TRL is not installed."""
    if importlib.util.find_spec("trl") is None:
        return Row(
            "GRPO step, TRL", "", note="TRL is not installed (the extra [trl]): the comparison with it is left out"
        )
    learner, fast, lengths = Learner(policy), [], []
    batches = [batch(step) for step in range(turns + against_trl.WARMUP)]

    def ours(step: int) -> None:
        learner.reset()
        seconds, (rollouts, _) = timed(lambda: learner.fast(batches[step], step))
        fast.append(seconds)
        lengths.append(float(rollouts.samples.mask.sum(1).double().mean()))

    trl = against_trl.measure(TASK, batches, GROUP, TRL_LIMIT, ours)
    mine, other = statistics.median(fast[against_trl.WARMUP :]), statistics.median(trl.seconds)
    length = statistics.mean(lengths[against_trl.WARMUP :])
    theirs = f"{trl.tokens:.1f} tokens a completion, {trl.accuracy:.0%} right"
    note = f"TRL {trl.version} GRPOTrainer on a Llama of the same shape: {theirs}; ours {length:.1f} tokens"
    return Row("GRPO step, TRL", f"{mine:.4f} s", f"{other:.3f} s", other / mine, AT_LEAST["trl"], note)


def sampling(policy: LabPolicy, n: int, turns: int, required: float | None = None) -> Row:
    """512 completions at temperature 1 for each of 200 problems of one size."""
    (problems,) = pointer_sets([n]).values()
    limits = [TASK.limit(problem) for problem in problems]
    uniforms = generator(0, "bench sampling", n).random((len(problems) * 512, max(limits)))
    seconds = [timed(lambda: policy.sample(problems, 512, uniforms, limits, Decoding()))[0] for _ in range(turns)]
    rate = len(uniforms) / statistics.median(seconds)
    return Row(f"sampling, n = {n}, completions/s", f"{rate:,.0f}", ratio=rate if required else None, required=required)


def steps(name: str, recipe: Recipe, base: Path | None) -> Row:
    """Seconds of a training step as the loop logs them: problems, completions and update."""
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        train(Path(folder, "run"), recipe, base, on_step=lambda step, metrics: seconds.append(metrics["time/step"]))
    return Row(f"{name} step", f"{statistics.median(seconds[5:]):.4f} s")


def evaluation(policy: LabPolicy, turns: int) -> Row:
    """A greedy evaluation as `make reproduce` does it along a curve."""
    sets = pointer_sets((8, 12, 14, 16))
    seconds = statistics.median(timed(lambda: evaluate(policy, TASK, sets))[0] for _ in range(turns))
    return Row("greedy evaluation, 4 x 200 problems", f"{seconds:.3f} s")


def the_base(root: Path) -> Path:
    """The run folder of the base model, trained now if it isn't there."""
    recipe = base_recipe(BASE, 0)
    if not (base_folder(BASE, recipe, root) / "model.safetensors").exists():
        say(f"No {BASE} in {root}/bases yet: training it, half a minute.")
    return make_base(BASE, recipe, root)


def say(line: str) -> None:
    """A line at once, also into a pipe."""
    print(line, flush=True)


def table(rows: Sequence[Row]) -> Table:
    """What was measured, and whether it is enough."""
    shown = Table(title="Speed, one thread, medians")
    shown.add_column("what")
    for title in ("ours", "other", "ratio", "required", ""):
        shown.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        rate = row.required is not None and row.required > 1000
        ratio = "" if row.ratio is None or rate else f"{row.ratio:.1f}x"
        required = "" if row.required is None else f"{row.required:,.0f}" + ("/s" if rate else "x")
        verdict = "" if row.required is None else "pass" if met(row) else "FAIL"
        shown.add_row(row.what, row.ours, row.other, ratio, required, verdict)
    return shown


def met(row: Row) -> bool:
    """Whether a row reaches what is required of it, if anything is."""
    return row.required is None or row.ratio >= row.required


def main() -> int:
    """Measure, print the table; 1 when something required was missed."""
    torch.set_num_threads(1)
    started = time.perf_counter()
    base = the_base(Path("runs"))
    policy = open_run(base)[0]
    say("GRPO steps of 256 completions: the plain step, then TRL (half a minute, most of it import and teaching) ...")
    rows = [against_plain(policy, "GRPO step, plain", 10, AT_LEAST["plain"])]
    fresh = make_policy(replace(BASES[BASE], seed=1))
    rows.append(against_plain(fresh, "GRPO step, plain, untrained model", 4))
    rows.append(against_trainer(open_run(base)[0], 10))
    say("Sampling, training steps, evaluation ...")
    policy = open_run(base)[0]
    rows += [sampling(policy, 12, 5, AT_LEAST["sampling"]), sampling(policy, 16, 3)]
    arm = Recipe(difficulty=DIFFICULTY, steps=30)
    rows += [steps(name, replace(arm, preset=chosen), base) for name, chosen in ARMS.items()]
    rows += [steps("base model", replace(BASES[BASE], steps=60), None), evaluation(policy, 5)]
    Console(width=100).print(table(rows))
    machine = f"{platform.machine()}, {torch.get_num_threads()} thread, torch {torch.__version__}"
    print(*(row.note for row in rows if row.note), f"{machine}; {time.perf_counter() - started:.0f} s in all", sep="\n")
    return int(not all(map(met, rows)))


if __name__ == "__main__":
    sys.exit(main())
