"""The ``rlvr`` command line: parse into a dataclass, perform it, and turn a user's mistake into one line."""

import contextlib
import io
import re
import sys

import tyro

from rlvr.cli.options import COMMANDS, Program

__all__ = ["main"]

NAMES = tuple(command.__name__.lower() for command in COMMANDS)


def main(arguments: list[str] | None = None) -> int:
    """Run one command; a user's mistake is one line on stderr and exit code 2, an interrupt is 130."""
    command = _parse(sys.argv[1:] if arguments is None else arguments)
    if isinstance(command, int):
        return command
    from rlvr.cli.perform import Mistake, perform

    try:
        return perform(command)
    except Mistake as mistake:
        print(f"rlvr: {mistake}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            "rlvr: interrupted; what was done is kept, the same command (or `rlvr resume RUN`) goes on",
            file=sys.stderr,
        )
        return 130
    except BrokenPipeError:
        return 0


def _parse(arguments: list[str]) -> object:
    """The command object, or an exit code when there is nothing to run; tyro's boxed errors become one line."""
    complaint = io.StringIO()
    style = (tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes, tyro.conf.FlagCreatePairsOff)
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(Program, args=arguments or ["--help"], prog="rlvr", config=style).command
    except SystemExit as end:
        if not end.code:
            return 0
        text = re.sub(r"[╭╮╰╯│─]+|-{3,}", " ", re.sub(r"\x1b\[[0-9;]*m", "", complaint.getvalue()))
        text = re.sub(r"(\w[\w ]+\w) \1", r"\1", " ".join(text.split()))  # the box has its message as its title, too
        short = re.split(r"Perhaps you meant|Argument helptext|For full helptext", " ".join(text.split()))[0]
        topic = f"rlvr {arguments[0]} --help" if arguments[0] in NAMES else "rlvr --help"
        print(f"rlvr: {short.strip()} (see `{topic}`)", file=sys.stderr)
        return 2
