"""The progress display: plain lines for logs, a table for terminals, an honest time left."""

import io
import re

import pytest
from rich.console import Console

from rlvr.lab.progress import Board, duration, groups_bar

RL = {
    "reward": 0.93,
    "accuracy": 0.925,
    "loss": 1e-9,
    "groups/all_right": 0.9,
    "groups/mixed": 0.02,
    "groups/all_wrong": 0.08,
    "tokens_per_second": 8123.4,
}


class Clock:
    """A clock that is set by hand."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def log(width=100):
    return Console(file=io.StringIO(), width=width)


def lines(console):
    return console.file.getvalue().splitlines()


def test_a_log_gets_a_line_every_five_seconds_and_one_at_the_end(clock):
    console = log()
    with Board({"grpo-s0": 100}, console, clock=clock) as board:
        board.update("grpo-s0", 0, 100)
        for step in range(1, 101):
            clock.now += 0.2
            board.update("grpo-s0", step, 100, RL)
        board.finish("grpo-s0")
    # 100 steps of 0.2 s are 20 s: a line at 0, 5, 10, 15 and 20 s, and the closing one.
    found = lines(console)
    assert len(found) == 6
    assert found[0] == "grpo-s0 0/100, ? left"
    numbers = "reward 0.93, accuracy 92.5 %, tok/s 8,123, groups right/mixed/wrong 90/2/8 %"
    assert found[1] == f"grpo-s0 25/100, {numbers}, 15 s left"
    assert found[-1] == f"grpo-s0 100/100, {numbers}, took 20 s"
    assert all("\x1b" not in line for line in found)


def test_several_jobs_share_a_line_with_the_whole_first(clock):
    console = log()
    with Board({"base": 400, "sft-s0": 200, "grpo-s0": 200, "grpo-s1": 200}, console, every=0, clock=clock) as board:
        board.finish("base")
        board.update("sft-s0", 0, 200)
        board.update("grpo-s0", 0, 200)
        clock.now += 10
        board.update("sft-s0", 50, 200)
        board.update("grpo-s0", 100, 200, {"reward": 0.5})
    # sft-s0 needs 30 s more, grpo-s0 10 s, grpo-s1 an average whole job of 30 s: 70 s on two cores are 35 s.
    assert (
        lines(console)[-2]
        == "1 of 4 done, 44 %, 35 s left | sft-s0 50/200, 30 s left | grpo-s0 100/200, reward 0.50, 10 s left"
    )
    assert lines(console)[-1] == "1 of 4 done, took 10 s"


def test_the_time_left_is_at_least_that_of_the_longest_job(clock):
    board = Board({"a": 100, "b": 100}, log(), clock=clock)
    assert board.left() is None
    board.update("a", 0, 100)
    board.update("b", 0, 100)
    clock.now += 10
    board.update("a", 10, 100)
    board.update("b", 90, 100)
    assert board.left() == pytest.approx(90.0)
    board.finish("a")
    assert board.left() == pytest.approx(10 / 9)
    board.finish("b")
    assert board.left() == 0.0


def test_steps_of_an_earlier_life_do_not_make_the_pace(clock):
    board = Board({"a": 100}, log(), clock=clock)
    board.update("a", 80, 100)
    clock.now += 10
    board.update("a", 90, 100)
    assert board.left() == pytest.approx(10.0)


def test_a_finished_job_keeps_its_pace_when_time_goes_on(clock):
    board = Board({"a": 10, "b": 10}, log(), clock=clock)
    board.update("a", 0, 10)
    clock.now += 5
    board.update("a", 10, 10)
    board.finish("a")
    board.update("b", 0, 10)
    assert board.left() == pytest.approx(5.0)
    clock.now += 100
    assert board.left() == pytest.approx(5.0)


def test_an_error_says_where_it_stopped(clock):
    console = log()
    with pytest.raises(KeyboardInterrupt), Board({"a": 10, "b": 10}, console, clock=clock) as board:
        board.update("a", 10, 10)
        board.finish("a")
        clock.now += 65
        raise KeyboardInterrupt
    assert lines(console)[-1] == "1 of 2 done, stopped after 1 min 05 s"


@pytest.mark.parametrize("started", [True, False])
def test_an_error_before_the_first_step_speaks_for_itself(clock, started):
    console = log()
    with pytest.raises(ValueError, match="wrong base"), Board({"a": 10}, console, clock=clock) as board:
        if started:
            board.update("a", 4, 10)
        raise ValueError("wrong base")
    assert lines(console) == (["a 4/10, ? left"] if started else [])


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_terminal_shows_a_row_for_each_running_job(clock, width):
    console = Console(file=io.StringIO(), record=True, force_terminal=True, width=width)
    with Board({"base": 400, "sft-s0": 200, "grpo-s0": 200, "grpo-s1": 200}, console, clock=clock) as board:
        board.finish("base")
        board.update("sft-s0", 0, 200)
        board.update("grpo-s0", 0, 200)
        clock.now += 10
        board.update("sft-s0", 50, 200, {"loss": 0.31, "tokens_per_second": 23456.0})
        board.update("grpo-s0", 100, 200, RL)
        screen = Console(file=io.StringIO(), width=width)
        screen.print(board)
    rows = screen.file.getvalue().splitlines()
    assert [row.split()[0] for row in rows[1:]] == ["sft-s0", "grpo-s0", "1"]
    assert "base" not in screen.file.getvalue()
    assert "…" not in screen.file.getvalue()
    assert {"100/200", "0.93", "92.5", "████████▒░", "10"} <= set(rows[2].split())
    assert ("8,123" in rows[2]) == ("23,456" in rows[1]) == (width >= 80)
    assert rows[3] == "1 of 4 done, 44 %, 35 s left"
    assert max(map(len, rows)) <= width
    assert "1 of 4 done, took 10 s" in console.export_text()


def test_a_job_without_steps_and_missing_numbers_are_shown_all_the_same(clock):
    board = Board(console=log(), clock=clock)
    board.update("a", 0, 0, {"reward": None, "accuracy": None, "groups/mixed": None})
    board.console.print(board)
    assert any(line.startswith("a ") and "0/0" in line for line in lines(board.console))


def test_a_small_share_of_groups_keeps_a_cell_and_the_bar_its_width():
    assert groups_bar([0.97, 0.01, 0.02]).plain == "████████▒░"
    assert groups_bar([0.0, 0.5, 0.5]).plain == "▒▒▒▒▒░░░░░"
    assert groups_bar([0.0, 0.0, 0.0]).plain == " " * 10
    for right in range(0, 101, 7):
        for mixed in range(0, 101 - right, 7):
            shares = [right / 100, mixed / 100, (100 - right - mixed) / 100]
            bar = groups_bar(shares).plain
            assert len(bar) == 10
            assert [glyph in bar for glyph in "█▒░"] == [share > 0 for share in shares]


def test_durations_round_up_to_the_next_unit():
    assert [duration(seconds) for seconds in (59.4, 59.6, 3599.6)] == ["59 s", "1 min 00 s", "1 h 00 min"]


def seen(stream):
    """What a terminal shows of a stream that goes back, up, and clears lines, and does nothing else."""
    shown, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\[[?\d;]*[a-zA-Z]|\r|\n|[^\x1b\r\n]+", stream):
        if part == "\n":
            row, column = row + 1, 0
            shown += [""] * (row + 1 - len(shown))
        elif part == "\r":
            column = 0
        elif part == "\x1b[1A":
            row = max(0, row - 1)
        elif part == "\x1b[2K":
            shown[row] = ""
        elif part[0] != "\x1b":
            shown[row] = shown[row][:column].ljust(column) + part + shown[row][column + len(part) :]
            column += len(part)
    return [line.rstrip() for line in shown if line.strip()]


def test_what_is_printed_aside_stays_whole_on_a_terminal():
    terminal = Console(file=io.StringIO(), width=100, force_terminal=True)
    with Board({"a": 3, "b": 3}, terminal) as board:
        for step in range(3):
            board.update("a", step, 3, RL)
            board.live.refresh()
            if step == 1:
                with board.aside():
                    terminal.print("first\nsecond\nthird")
        board.finish("a")
        board.finish("b")
    shown = seen(terminal.file.getvalue())
    assert shown[:3] == ["first", "second", "third"] and shown[3].startswith("2 of 2 done") and len(shown) == 4
