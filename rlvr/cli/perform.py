"""Carry out a parsed command. Imported only once a command line is understood, so that help is quick."""

from typing import Any

import torch

from rlvr.cli import attack, bootstrap, look, models, options, power, reproduce, run, verifier
from rlvr.cli.words import Mistake
from rlvr.lab.lock import RunIsBusy
from rlvr.lab.memory import keep_freed_memory
from rlvr.lab.track import MissingExtra

__all__ = ["Mistake", "perform"]

DEEDS = {
    options.Reproduce: reproduce.reproduce,
    options.List: look.list_all,
    options.Show: look.show,
    options.Train: run.train_run,
    options.Bootstrap: bootstrap.bootstrap_run,
    options.Verifier: verifier.verifier_run,
    options.Eval: look.eval_run,
    options.Sample: look.sample_run,
    options.Report: run.report,
    options.Attack: attack.attack_run,
    options.Power: power.power_run,
    options.Export: models.export,
    options.Resume: run.resume,
}
A_USER_CAN_MEND = (ValueError, RunIsBusy, MissingExtra, FileNotFoundError, PermissionError, NotADirectoryError)


def perform(command: Any) -> int:
    """Carry out a parsed command and return its exit code; errors a user can mend come out as ``Mistake``."""
    # Small matrices don't scale over threads; parallel work is processes.
    torch.set_num_threads(1)
    keep_freed_memory()
    try:
        _check_device(getattr(command, "device", "cpu"))
        return DEEDS[type(command)](command) or 0
    except A_USER_CAN_MEND as error:
        raise Mistake(" ".join(str(error).split())) from error


def _check_device(name: str) -> None:
    """Refuse a device that isn't here before anything is written; what PyTorch raises differs from build to build."""
    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise Mistake(f"--device {name}: {reason}; accepted: a device that PyTorch finds here, such as cpu") from None
