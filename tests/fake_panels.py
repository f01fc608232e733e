"""A plausible experiment made of jobs and panels alone, and a whole lecture of experiments: for tests of the report only."""

import math
from pathlib import Path
from typing import Any

from fake_runs import CLAIMS, EVIL, SMALL, Shape, fake_base, fake_experiment, fake_run

from rlvr.lab.jsonl import read_json, write_json

__all__ = ["PANELS", "fake_lecture", "fake_passk"]

KS = [4**power for power in range(11)]


def _rise(start: float, end: float, k: int, half: float) -> float:
    return start + (end - start) * k / (k + half)


def _series(label: str, start: float, end: float, half: float, **more: Any) -> dict[str, Any]:
    ys = [_rise(start, end, k, half) for k in KS]
    edges = {"lo": [max(0.0, y - 0.03) for y in ys], "hi": [min(1.0, y + 0.03) for y in ys]}
    return {"label": label, "x": KS, "y": ys, **edges, "dashed": False, "arm": "", **more}


PANELS = [
    {
        "type": "lines",
        "key": "passk-n16",
        "title": "Do the base and GRPO cross when they may try often enough?",
        "text": "Share of problems of n = 16 solved at least once in k tries. Bands: 95 % over problems.",
        "series": [
            _series("base", 0.04, 0.86, 30_000, arm="base"),
            _series("SFT", 0.35, 0.66, 300, arm="sft"),
            _series("RFT", 0.14, 0.2, 30, arm="rft"),
            _series("GRPO", 0.353, 0.53, 200, arm="grpo"),
            {
                "label": "GRPO, exact",
                "x": KS,
                "y": [_rise(0.353, 0.55, k, 220) for k in KS],
                "dashed": True,
                "arm": "grpo",
            },
        ],
        "x_title": "k, tries a problem",
        "y_title": "share of problems solved at least once",
        "log_x": True,
        "percent": True,
        "caption": "Solid: estimated from 512 samples; dashed: exact.",
        "marks": [[512, "samples drawn"], [12_000, "they cross"]],
    },
    {
        "type": "lines",
        "key": "length",
        "title": "What does it add when it writes more?",
        "text": "Letters a response beyond the needed chain.",
        "series": [
            {"label": "think10", "x": list(range(0, 300, 10)), "y": [3 + math.sin(i / 3) for i in range(30)]},
            {"label": "a base that never thinks", "x": list(range(0, 300, 10)), "y": [None] * 10 + [2.0] * 20},
            {"label": "nothing", "x": [], "y": []},
        ],
        "x_title": "step",
        "y_title": "letters",
        "percent": False,
    },
    {
        "type": "bars",
        "key": "kinds",
        "title": "How do the two bases fail?",
        "text": "Kinds of failure on n = 12.",
        "rows": [
            ["a base that runs on past the end of the chain", {"no_bar": 0.7, "overshoot": 0.2, "lookup": 0.1}],
            ["GRPO", {"undershoot": 0.9, "lookup": 0.06, "format": 0.04}],
        ],
        "parts": ["no_bar", "overshoot", "undershoot", "lookup", "format"],
        "x_title": "share of failures",
    },
    {
        "type": "bars",
        "key": "distinct",
        "title": "How many different answers does it give?",
        "text": "",
        "rows": [["base", {"answers": 2.96}], ["SFT", {"answers": 2.65}], ["RFT", {"answers": 1.44}]],
        "parts": ["answers"],
        "x_title": "distinct answers in 512 samples",
        "percent": False,
    },
    {
        "type": "table",
        "key": "lost",
        "title": "Which problems are lost, and which gained?",
        "text": "Counts of 200 problems.",
        "columns": ["set", "lost", "gained", "share", "remark"],
        "rows": [
            [
                "n = 12",
                0,
                107,
                0.5351,
                "every problem that the base never solved is solved now, at any number of tries",
            ],
            ["n = 16", 14, 79, None, EVIL],
        ],
        "caption": "Lost: solved by the base in 512 tries, never afterwards.",
    },
    {
        "type": "texts",
        "key": "hacks",
        "title": "What does it write when it is paid for nothing?",
        "text": "Completions with the verifier's score.",
        "rows": [
            ["step 50", "ab,bc,cd?a3:", "||$", "verifier 0.98, truth 0"],
            ["step 100", "ab,bc,cd?a3:", EVIL, "verifier 1.00\u0000, truth 0"],
            ["step 300", "ab,bc,cd?a3:", "d" * 400, EVIL],
        ],
    },
]


def fake_passk(root: Path, **changes: Any) -> Path:
    """An experiment without arms: its base, two jobs, panels and claims."""
    folder = Path(root, "passk")
    fake_base(folder, 0)
    for job in ("tree-grpo-s0", "samples"):
        write_json(folder / job / "result.json", {"seconds": 12.5, "samples": 102_400})
    record = {
        "name": "passk",
        "title": "Does RL find what its base never could?",
        "question": "If both may try often enough, does the base still solve problems that the trained model has lost?",
        "answer": "Yes: on n = 16 the base overtakes GRPO at about 12,000 tries. On n = 12 it never does.",
        "setup": "Models of the first experiment, seed 0; 512 samples a problem at temperature 1, and the tree of completions.",
        "command": "rlvr reproduce passk",
        "quick": False,
        "preliminary": True,
        "arms": [],
        "seeds": [0],
        "seeds_of": {},
        "bases": ["base"],
        "panels": PANELS,
        "claims": [{**CLAIMS[2], "id": "crossing-ood", "claim": "On n = 16 the curves cross.", "n": 1}, CLAIMS[3]],
        "notes": [],
    }
    write_json(folder / "experiment.json", record | changes)
    return folder


def fake_thinking(root: Path, shape: Shape = SMALL) -> Path:
    """Arms from two kinds of base, one with seeds of its own, and a divergence alarm in the logs."""
    folder = Path(root, "thinking")
    for seed in range(3):
        for kind in ("think10", "think0"):
            fake_base(folder, seed, shape).rename(folder / f"base_{kind}-s{seed}")
        fake_run(folder, "think10", seed, shape)
    for seed in range(5):
        fake_run(folder, "think0", seed, shape)
    for path in folder.glob("think0-s[01]/metrics.jsonl"):
        rows = path.read_text(encoding="utf-8").splitlines()
        alarmed = [row[:-1] + f', "divergence_alarm": {int(step > 11)}}}' for step, row in enumerate(rows)]
        path.write_text("\n".join(alarmed) + "\n", encoding="utf-8")
    record = {
        "name": "thinking",
        "title": "Where do long chains come from?",
        "question": "Does RL invent thinking, or does it select it?",
        "answer": "It selects it.",
        "arms": ["think10", "think0"],
        "seeds": [0, 1, 2],
        "seeds_of": {"think0": [0, 1, 2, 3, 4]},
        "bases": ["base_think10", "base_think0"],
        "panels": PANELS[1:3],
        "claims": [CLAIMS[0] | {"id": "rl-selects", "claim": "RL selects chains that the base already writes."}],
    }
    write_json(folder / "experiment.json", record)
    return folder


def fake_lecture(root: Path, shape: Shape = SMALL) -> list[Path]:
    """Three experiments side by side and their ``ledger.json``."""
    folders = [fake_experiment(root, shape=shape), fake_passk(root), fake_thinking(root, shape)]
    rows = []
    for folder in folders:
        record = read_json(folder / "experiment.json")
        own = {"experiment": record["name"], "preliminary": record["name"] == "passk"}
        rows += [claim | own | {"page": f"{folder.name}/report.html"} for claim in record["claims"]]
    write_json(Path(root, "ledger.json"), {"claims": rows})
    return folders
