"""The ledger: every claim of every finished experiment with its rule, our number, the lecture's and the verdict, as data."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlvr.lab.jsonl import read_json, write_json

__all__ = ["LEDGER", "ledger_of", "newest", "write_ledger"]

LEDGER = "ledger.json"
QUICK = "-quick"


def newest(root: Path, names: Sequence[str]) -> list[Path]:
    """The finished experiments below ``root``, in the order of ``names``; a quick one only where there is no whole one."""
    found = []
    for name in names:
        whole, quick = Path(root) / name, Path(root) / (name + QUICK)
        found += [folder for folder in (whole, quick) if (folder / "experiment.json").is_file()][:1]
    return found


def ledger_of(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """One row a claim: ``experiment``, ``id``, ``claim``, ``lecture``, ``rule``, ``value`` with ``lo``, ``hi`` and ``n``,
    ``measured`` in words, ``verdict``, ``why``, ``preliminary`` (fewer than three seeds, or a quick run), ``page``.
    """
    rows = []
    for folder in folders:
        summary = read_json(Path(folder) / "experiment.json")
        preliminary = summary["preliminary"] or summary["quick"]
        for claim in summary["claims"]:
            place = {"preliminary": preliminary, "page": f"{Path(folder).name}/report.html"}
            rows.append({"experiment": summary["name"]} | claim | place)
    return rows


def write_ledger(root: Path, folders: Sequence[Path]) -> Path:
    """``ledger.json`` below ``root``, atomically."""
    path = Path(root) / LEDGER
    write_json(path, {"claims": ledger_of(folders)})
    return path
