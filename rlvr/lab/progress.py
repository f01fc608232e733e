"""What a waiting person sees: one line a job with its numbers and the time left, live on a terminal, plain
in a log.

A job is anything that counts steps: a run, the training of a base. ``Board`` only displays. One run feeds
it from its loop; whoever starts worker processes feeds it with the newest line of each run's log, so that
workers need not know of it:

>>> from rlvr.lab.store import last_metrics
>>> def poll(board, folders, steps):
...     for job, folder in folders.items():
...         if metrics := last_metrics(folder):
...             board.update(job, metrics["step"] + 1, steps, metrics)
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

__all__ = ["Board", "duration", "groups_bar"]

GROUPS = {
    "groups/all_right": ("█", "green"),
    "groups/mixed": ("▒", "yellow"),
    "groups/all_wrong": ("░", "red"),
}
NUMBERS: dict[str, tuple[str, Callable[[float], str]]] = {
    "loss": ("loss", "{:.3f}".format),
    "reward": ("reward", "{:.2f}".format),
    "accuracy": ("accuracy", lambda share: f"{100 * share:.1f} %"),
    "tokens_per_second": ("tok/s", "{:,.0f}".format),
}


def duration(seconds: float | None) -> str:
    """Seconds as a person says them; ``None`` is not known yet.

    >>> [duration(s) for s in (0.2, 42, 185, 4320, None)]
    ['0 s', '42 s', '3 min 05 s', '1 h 12 min', '?']
    """
    if seconds is None:
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def groups_bar(shares: Iterable[float], width: int = 10) -> Text:
    """The shares of groups that are all right, mixed and all wrong as a bar of ``width`` cells.

    A share above 0 gets at least one cell, however small it is: the mixed groups are the ones that teach. The
    largest share gives what that costs.

    >>> groups_bar([0.9, 0.02, 0.08]).plain
    '████████▒░'
    """
    shares = list(shares)
    if not sum(shares) > 0:
        return Text(" " * width)
    cells = [max(1, round(share * width)) if share > 0 else 0 for share in shares]
    largest = cells.index(max(cells))
    cells[largest] += width - sum(cells)
    return Text.assemble(
        *((glyph * count, style) for count, (glyph, style) in zip(cells, GROUPS.values(), strict=True))
    )


@dataclass
class _Job:
    total: int
    done: int = 0
    started: float | None = None
    ended: float | None = None
    # Steps found at the first update were made in an earlier life of the run; today's pace leaves them out.
    kept: int = 0
    fields: Mapping[str, Any] = field(default_factory=dict)

    def running(self) -> bool:
        return self.started is not None and self.ended is None

    def share(self) -> float:
        return 1.0 if self.ended is not None else self.done / max(1, self.total)

    def pace(self, now: float) -> float | None:
        """Seconds a step, ``None`` before the first step."""
        made = self.done - self.kept
        return None if self.started is None or made <= 0 else ((self.ended or now) - self.started) / made

    def left(self, now: float) -> float | None:
        pace = self.pace(now)
        return None if pace is None else pace * (self.total - self.done)

    def numbers(self) -> dict[str, str]:
        """What is known, as text, by its label. The loss is left out beside a reward: in RL its level says
        nothing."""
        keys = [key for key in NUMBERS if key != "loss" or self.fields.get("reward") is None]
        known = {NUMBERS[key]: self.fields.get(key) for key in keys}
        return {label: write(value) for (label, write), value in known.items() if value is not None}

    def words(self) -> str:
        found = [f", {label} {text}" for label, text in self.numbers().items()]
        if shares := self.shares():
            found.append(", groups right/mixed/wrong " + "/".join(f"{100 * share:.0f}" for share in shares) + " %")
        return "".join(found)

    def shares(self) -> list[float] | None:
        shares = [self.fields.get(key) for key in GROUPS]
        return None if None in shares else shares


class Board:
    """A context that shows jobs: ``update`` as steps are made, ``finish`` when a job is over.

    ``plan`` names the jobs that will come with their steps, so that the overall time left counts them too;
    a job that is not in it joins with its first update. On a terminal the lines are redrawn in place;
    elsewhere a plain line is written at most every ``every`` seconds, and one at the end. Text goes to
    stderr unless ``console`` says otherwise.

    >>> import io
    >>> console = Console(file=io.StringIO())
    >>> with Board({"grpo-s0": 200}, console, every=0) as board:
    ...     board.update("grpo-s0", 50, 200, {"reward": 0.5, "accuracy": 0.25})
    ...     board.finish("grpo-s0")
    >>> print(console.file.getvalue().splitlines()[0])
    grpo-s0 50/200, reward 0.50, accuracy 25.0 %, ? left
    """

    def __init__(
        self,
        plan: Mapping[str, int] | None = None,
        console: Console | None = None,
        every: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.console = console or Console(stderr=True)
        self.every = every
        self.clock = clock
        self.jobs = {name: _Job(total) for name, total in (plan or {}).items()}
        self.opened = clock()
        self.spoken = self.opened - every
        self.live = self._new_live() if self.console.is_terminal else None

    def _new_live(self) -> Live:
        return Live(self, console=self.console, transient=True)

    def update(self, job: str, done: int, total: int, fields: Mapping[str, Any] | None = None) -> None:
        """``done`` of ``total`` steps are made; the first update starts the job's clock.

        ``fields`` are the newest metrics as they are logged (``None`` keeps the last ones); shown are
        reward, or loss where there is none, accuracy, the three shares of groups, and tokens per second.
        """
        known = self.jobs.setdefault(job, _Job(total))
        if known.started is None:
            known.started, known.kept = self.clock(), done
        known.done, known.total = done, total
        known.fields = known.fields if fields is None else fields
        self._speak()

    def finish(self, job: str) -> None:
        """``job`` is over; one that never had an update was kept from before and says nothing about the
        pace."""
        known = self.jobs.setdefault(job, _Job(0))
        known.done, known.ended = known.total, self.clock()
        self._speak()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """The lines are taken away while something else is printed: what stands below them would be overwritten."""
        if self.live is None:
            yield
            return
        self.live.stop()
        try:
            yield
        finally:
            # The old one would go up over what was printed, as far as its own lines reached.
            self.live = self._new_live()
            self.live.start()

    def left(self) -> float | None:
        """Seconds until all jobs are over, ``None`` before there is anything to judge by.

        A running job goes on at its own pace, a waiting one takes as long as the known ones do on average,
        and as many go on side by side as do now; never less than the longest running job needs.
        """
        now = self.clock()
        known = [(job.pace(now), job.total) for job in self.jobs.values()]
        whole = [pace * total for pace, total in known if pace is not None]
        unfinished = [job for job in self.jobs.values() if job.ended is None]
        if not unfinished:
            return 0.0
        if not whole:
            return None
        typical = sum(whole) / len(whole)
        lefts = [typical if (left := job.left(now)) is None else left for job in unfinished]
        return max(*lefts, sum(lefts) / max(1, sum(job.running() for job in unfinished)))

    def _over(self) -> int:
        return sum(job.ended is not None for job in self.jobs.values())

    def _overall(self) -> str:
        share = sum(job.share() for job in self.jobs.values()) / max(1, len(self.jobs))
        return f"{self._over()} of {len(self.jobs)} done, {100 * share:.0f} %, {duration(self.left())} left"

    def _speak(self) -> None:
        if self.live is None and self.clock() - self.spoken >= self.every:
            self.spoken = self.clock()
            self._print(self._plain())

    def _print(self, line: str) -> None:
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _plain(self) -> str:
        now = self.clock()
        lines = [
            f"{name} {job.done}/{job.total}{job.words()}, {duration(job.left(now))} left"
            for name, job in self.jobs.items()
            if job.running()
        ]
        return " | ".join(lines if len(self.jobs) == 1 and lines else [self._overall(), *lines])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """The live view: a row for each running job and, where there are several jobs, the whole below."""
        now, width = self.clock(), options.max_width
        running = {name: job for name, job in self.jobs.items() if job.running()}
        numbers = {name: job.numbers() for name, job in running.items()}
        labels = [label for label, _ in NUMBERS.values() if any(label in known for known in numbers.values())]
        if width < 80:
            labels = [label for label in labels if label in ("reward", "accuracy")] or labels
        table = Table(box=None, header_style="dim", padding=(0, 2 if width >= 100 else 1, 0, 0))
        for title in ["", "", "step", *labels, "groups █▒░", "left"]:
            table.add_column(title, justify="right" if title in ("step", *labels) else "left", no_wrap=True)
        for name, job in running.items():
            bar = ProgressBar(total=job.total, completed=job.done, width=16 if width >= 100 else 6)
            cells = [numbers[name].get(label, "") for label in labels]
            table.add_row(
                name,
                bar,
                f"{job.done}/{job.total}",
                *cells,
                groups_bar(job.shares() or [0]),
                duration(job.left(now)),
            )
        yield table
        if len(self.jobs) > 1:
            yield Text(self._overall())

    def __enter__(self) -> "Board":
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.live is not None:
            self.live.stop()
        if error[0] and not any(job.ended is not None or job.done > job.kept for job in self.jobs.values()):
            return  # Nothing was done, so the error itself is all there is to say.
        took = f"{'stopped after' if error[0] else 'took'} {duration(self.clock() - self.opened)}"
        if len(self.jobs) == 1:
            name, job = next(iter(self.jobs.items()))
            self._print(f"{name} {job.done}/{job.total}{job.words()}, {took}")
        else:
            self._print(f"{self._over()} of {len(self.jobs)} done, {took}")
