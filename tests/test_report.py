"""The page of an experiment: its numbers are those of the folders, its texts are escaped, its gaps are stated."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fake_runs import EVIL, SMALL, Shape, fake_experiment, fake_run
from read_pages import block, tags, visible
from scipy import stats

from rlvr.lab.jsonl import iter_jsonl, read_json, write_json
from rlvr.lab.store import read_evals
from rlvr.report import theme, tokens, write_report, write_run_report
from rlvr.report.data import Evaluation, Experiment, Run, read_experiment, read_loose_runs
from rlvr.report.document import embed
from rlvr.report.summary import Line, after, before, binned, estimate, learning_curves, spent
from rlvr.report.tokens import shown_rollouts

ARMS = ("sft", "rft", "grpo")
LITTLE = Shape(steps=20, every=10, per_k=1, prompts=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return fake_experiment(tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module")
def page(folder):
    return write_report(folder).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def little(tmp_path_factory):
    return fake_experiment(tmp_path_factory.mktemp("little"), ("sft", "grpo"), 2, LITTLE)


@pytest.fixture
def copy(little, tmp_path):
    """A small experiment that a test may damage."""
    return Path(shutil.copytree(little, tmp_path / little.name))


def report(folder):
    return write_report(folder).read_text(encoding="utf-8")


def shares(folder, arm, label, step=-1, seeds=range(3)):
    """[seeds] greedy accuracy, straight from the files; ``step`` counts evaluations."""
    found = [read_evals(folder / f"{arm}-s{seed}", "greedy")[step]["columns"] for seed in seeds]
    rows = [
        [c for name, c in zip(columns["set"], columns["correct"], strict=True) if name == label] for columns in found
    ]
    return np.mean(rows, axis=1)


def student(values):
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return values.mean(), max(0.0, values.mean() - half), min(1.0, values.mean() + half)


# ── Numbers ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_answer_has_the_numbers_of_the_folders(folder, page):
    start, ends = 100 * shares(folder, "base", "n12").mean(), [100 * shares(folder, arm, "n12").mean() for arm in ARMS]
    far = [100 * shares(folder, arm, "n14").mean() for arm in ARMS]
    sentence = (
        f"On n = 12, accuracy goes from {start:.1f} % before training to {ends[0]:.1f} % with SFT, {ends[1]:.1f} % with RFT "
        f"and {ends[2]:.1f} % with GRPO after 40 steps. On n = 14, longer than any prompt in training (n ≤ 12), "
        f"it is {far[0]:.1f} %, {far[1]:.1f} % and {far[2]:.1f} %."
    )
    assert sentence in visible(page).replace(" , ", ", ").replace(" . ", ". ")


def test_the_opening_table_has_final_accuracy_interval_and_budget(folder, page):
    opening = visible(page[page.index('class="opening"') : page.index('id="claims"')])
    value, low, high = (100 * number for number in student(shares(folder, "rft", "n14")))
    assert f"{value:.1f} % {low:.1f} to {high:.1f}" in opening
    last = [list(iter_jsonl(folder / f"rft-s{seed}" / "metrics.jsonl"))[-1] for seed in range(3)]
    assert last[0]["samples"] == 960 and last[0]["tokens"] == 6720
    assert f"960 — 6,720 {np.mean([row['seconds'] for row in last]):.3g}" in opening


def test_three_seeds_give_an_interval_over_seeds_and_fewer_one_over_problems(folder):
    found = after(read_experiment(folder), "rft", "greedy", set="n14")
    assert (found.n, found.unit) == (3, "seeds")
    assert (found.value, found.lo, found.hi) == pytest.approx(student(shares(folder, "rft", "n14")))
    scores = np.array([1.0] * 9 + [0.0] * 3)
    assert (estimate([scores]).n, estimate([scores]).unit) == (12, "problems")
    assert estimate([scores, scores]).unit == "problems"
    # Equal seeds never vary; the problems still do.
    assert estimate([scores] * 3).unit == "problems" and not estimate([scores] * 3).degenerate
    assert estimate([]) is None and estimate([np.array([])]) is None


def test_learning_curves_are_the_evaluations_a_thin_line_a_seed_and_a_bold_mean(folder, page):
    traces = {trace["name"]: trace for trace in block(page, "figures")["hero"]["data"]}
    for arm in ARMS:
        steps = [100 * shares(folder, arm, "n12", step) for step in range(5)]
        for seed in range(3):
            thin = traces[f"{arm.upper()} seed {seed}"]
            assert thin["x"] == [0, 10, 20, 30, 40] and thin["y"] == pytest.approx([values[seed] for values in steps])
            assert thin["line"]["width"] < traces[arm.upper()]["line"]["width"]
        assert traces[arm.upper()]["y"] == pytest.approx([values.mean() for values in steps])


def test_heat_kinds_and_groups_are_those_of_the_files(folder, page):
    found = [read_evals(folder / f"grpo-s{seed}", "greedy")[-1]["columns"] for seed in range(3)]
    rows = [row for each in found for row in zip(each["set"], each["k"], each["correct"], each["kinds"], strict=True)]
    heat = page[page.index("By number of steps k") :]
    cell = 100 * np.mean([correct for name, k, correct, _ in rows if (name, k) == ("n14", 5)])
    last = heat.split("<table")[4]
    assert re.findall(r">(\d+)</td>", last)[3 * 4 + 2] == f"{cell:.0f}"
    bars = {
        bar["name"]: dict(zip(bar["y"], bar["x"], strict=True)) for bar in block(page, "figures")["kinds-n14"]["data"]
    }
    kinds = [kind for name, *_, found in rows if name == "n14" for kind in found]
    assert bars["never stops"]["GRPO"] == pytest.approx(100 * kinds.count("no_bar") / 36)
    assert sum(bar["GRPO"] for bar in bars.values()) == pytest.approx(100)
    logs = [list(iter_jsonl(folder / f"grpo-s{seed}" / "metrics.jsonl")) for seed in range(3)]
    groups = {trace["name"]: trace for trace in block(page, "figures")["groups-grpo"]["data"]}
    mixed = [100 * np.mean([log[step]["groups/mixed"] for log in logs]) for step in range(40)]
    assert groups["mixed"]["x"] == list(range(40)) and groups["mixed"]["y"] == pytest.approx(mixed)


def test_each_base_counts_once_however_many_runs_set_out_from_it():
    def run(arm, base, correct):
        evaluation = Evaluation("greedy", 0, 1, {"set": ["n12"] * 4, "correct": [correct] * 4, "samples": [1] * 4})
        return Run(arm, 0, Path(arm), {"base": base}, (), {"greedy": {0: evaluation}})

    runs = (run("a", "x", 1), run("b", "x", 1), run("c", "y", 0))
    assert before(Experiment("mine", arms=("a", "b", "c"), runs=runs), "greedy", set="n12").value == 0.5


def test_a_seed_that_stopped_early_does_not_bend_the_mean():
    line = Line("grpo", {0: ([0, 25, 50], [0.0, 0.5, 1.0]), 1: ([0, 25], [0.2, 0.1])})
    assert line.mean() == ([0, 25], [0.1, 0.3])


def test_bins_average_whole_steps():
    xs, ys = binned([(step, float(step)) for step in range(200)], 50)
    assert len(xs) == 50 and xs[0] == ys[0] == 1.5 and xs[-1] == ys[-1] == 197.5


def test_a_curve_against_cost_reads_what_was_spent_before_the_evaluation(folder):
    experiment = read_experiment(folder)
    grpo = experiment.of("grpo")[0]
    assert spent(grpo, 0, "samples") == 0.0
    assert spent(grpo, 10, "samples", "demonstrations") == 10 * SMALL.prompts * SMALL.group
    assert spent(grpo, 41, "samples") is None
    (line,) = learning_curves(
        Experiment("mine", arms=("grpo",), runs=(grpo,)), "greedy", "n12", lambda run, step: spent(run, step, "samples")
    )
    assert line.seeds[0][0] == [0.0, 240.0, 480.0, 720.0, 960.0]


def test_the_seed_table_and_the_csv_have_the_counts(folder, page):
    right = round(12 * shares(folder, "grpo", "n16")[1])
    assert f'<td title="{right} of 12">{100 * right / 12:.1f}</td>' in page
    csv = re.search(r'href="data:text/csv;charset=utf-8,([^"]*)"', page)[1]
    assert f"grpo%2C1%2Cgreedy%2C40%2Cn16%2C{right}%2C12%0A" in csv


# ── What stands on the page ─────────────────────────────────────────────────────────────────────────────────


def test_claims_show_rule_numbers_interval_and_verdict(page):
    text = visible(page)
    assert "Most groups carry no signal at the start." in text
    assert "Rule: holds if over 80 % of the groups of the first 25 steps are all right or all wrong." in text
    assert "80.1 % [77.2, 82.9], n = 3" in text and "−11.5 % [−16.1, −6.9], n = 3" in text
    for verdict, count in (("✓ holds", 2), ("≠ differs", 1), ("? undecided", 1)):
        assert text.count(verdict) == 2 * count + 1, (
            "once in the tally; twice a claim, in the opening and with its rule"
        )


def test_the_page_ends_with_the_commands_that_make_it(folder, page):
    assert "rlvr reproduce three_methods --seeds 3" in page and "rlvr report three_methods" in page
    assert str(folder.parent) not in page


def test_the_arms_differ_only_where_their_configurations_do(page):
    table = page[page.index('id="settings"') :]
    differ, _, shared = table.partition("What they share")
    assert all(f"<code>{key}</code>" in differ for key in ("advantage", "loss", "source", "group_size"))
    assert "<code>learning_rate</code>" in shared and "<code>learning_rate</code>" not in differ


def test_labels_for_few_seeds_and_quick_runs(page, tmp_path):
    assert "preliminary" not in visible(page) and "quick run" not in visible(page)
    short = report(fake_experiment(tmp_path, ("grpo",), 2, LITTLE, quick=True, preliminary=False))
    assert "preliminary: fewer than three seeds" in visible(short) and "quick run" in visible(short)
    assert "n = 4 problems" in short


def test_the_first_screen_answers_before_it_explains(page):
    order = [
        "<h1>",
        'class="question"',
        'class="lede"',
        'data-figure="hero"',
        'class="ledger"',
        "what it cost",
        "<b>Setup.</b>",
        'id="claims"',
    ]
    places = [page.index(mark) for mark in order]
    assert places == sorted(places)


def test_accuracies_that_were_not_measured_alike_are_named(copy):
    assert "not measured alike" not in report(copy)
    (path,) = sorted((copy / "grpo-s1" / "evals").glob("greedy*"))[-1:]
    record = read_json(path)
    write_json(path, record | {"top_p": 0.9})
    assert "sft-s0 and grpo-s1 were not measured alike: top_p: not recorded and 0.9" in visible(report(copy))


def test_a_sweep_is_drawn_against_its_number(tmp_path):
    arms = [f"{method}-{rate}" for method in ("sft", "grpo") for rate in ("0.0001", "0.001")]
    page = report(fake_experiment(tmp_path, arms, 1, LITTLE))
    assert "learning rate" in visible(page) and re.search(r"with GRPO at 0\.0001", visible(page))
    figure = block(page, "figures")["sweep-n12"]
    assert [trace["name"] for trace in figure["data"]] == ["SFT", "GRPO"]
    assert figure["layout"]["xaxis"]["type"] == "log"


# ── One file, nothing fetched, the same bytes ───────────────────────────────────────────────────────────────


def test_the_file_is_whole(page):
    outside = re.sub(r"<script nonce.*?</script>", "", page, flags=re.S)
    assert not re.findall(r"""(?:src|href|url|action)\s*[=(]\s*["']?\s*(?:https?:)?//""", outside)
    assert not re.findall(r"<(?:link|img|iframe|object|embed)\b(?![^>]*href=\"data:,\")", outside)
    assert page.count("plotly.js v") == 1
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)[1]
    assert "default-src 'none'" in policy and "connect-src" not in policy
    assert len(page.encode()) < 6_000_000


def test_the_same_folders_give_the_same_bytes(folder, page, tmp_path):
    assert write_report(folder, tmp_path / "again.html").read_text(encoding="utf-8") == page


def test_writing_a_page_imports_no_torch(folder, tmp_path):
    code = "import sys; from pathlib import Path; from rlvr.report import write_report; "
    code += "write_report(Path(sys.argv[1]), Path(sys.argv[2])); sys.exit('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder), str(tmp_path / "page.html")], cwd=Path(__file__).parent.parent
    )
    assert done.returncode == 0


def test_every_figure_has_its_place_and_every_colour_its_dark_twin(page):
    figures, twins = block(page, "figures"), block(page, "twins")
    assert sorted(re.findall(r'data-figure="([^"]*)"', page)) == sorted(figures)
    colours = set(re.findall(r'"(#[0-9a-f]{3,8})"', json.dumps(figures)))
    assert colours and colours <= set(twins)
    tones = [tone.light for tone in (*theme.ROLES.values(), *theme.ARMS, *theme.KINDS)]
    assert len(tones) == len(set(tones))


def test_every_link_of_the_page_leads_somewhere(page):
    links = set(re.findall(r'href="#([^"]*)"', page))
    assert {"claims", "completions", "again", "claim-zero-variance"} <= links <= set(re.findall(r'id="([^"]*)"', page))


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("role", ["ink", "soft", "faint", "up", "down", "holds", "differs", "undecided"])
@pytest.mark.parametrize("night", [0, 1])
def test_text_can_be_read_on_its_ground(role, night):
    for ground in ("paper", "card"):
        lights = sorted(luminance(theme.ROLES[name][night]) for name in (role, ground))
        assert (lights[1] + 0.05) / (lights[0] + 0.05) >= 4.5


# ── Texts of models ─────────────────────────────────────────────────────────────────────────────────────────


def test_model_text_is_data_and_never_markup(folder, page, tmp_path):
    rows = [
        row for step in block(page, "rollouts")["arms"]["grpo"] for group in step["groups"] for row in group["rows"]
    ]
    assert EVIL in [row["c"] for row in rows]
    assert EVIL not in page and "window.hacked" in page
    raw = re.search(r'id="rollouts">(.*?)</script>', page, re.S)[1]
    assert not set("<>&") & set(raw)


def test_texts_of_the_experiment_are_escaped_too(page, tmp_path):
    claim = {"id": EVIL, "claim": EVIL, "rule": EVIL, "lecture": EVIL, "measured": EVIL, "verdict": EVIL, "why": EVIL}
    texts = dict.fromkeys(("title", "question", "setup", "command"), EVIL)
    wicked = fake_experiment(tmp_path, ("grpo",), 1, LITTLE, **texts, claims=[claim], notes=[EVIL])
    shutil.copytree(wicked / "grpo-s0", wicked / "a<script>b-s0")
    write_json(wicked / "experiment.json", read_json(wicked / "experiment.json") | {"arms": ["grpo", "a<script>b"]})
    damaged = report(wicked)
    assert tags(damaged).count("script") == tags(page).count("script")
    assert "img" not in tags(damaged) and "think" not in tags(damaged)
    assert visible(damaged).count(EVIL) >= 8


def test_embedded_json_survives_every_text():
    value = {"a": ["</script><!--", "\u2028\u2029", "é&", float("nan"), np.float64("inf"), 1.5, True, None, "𝔸"]}
    text = embed(value)
    assert json.loads(text) == {"a": ["</script><!--", "\u2028\u2029", "é&", None, None, 1.5, True, None, "𝔸"]}
    assert text.isascii() and not set("<>&") & set(text)


# ── Rollouts ────────────────────────────────────────────────────────────────────────────────────────────────


def test_signals_and_logps_are_those_of_the_tokens(folder):
    from rlvr.lab.store import read_rollouts

    shown = shown_rollouts(read_experiment(folder), [])
    table = read_rollouts(folder / "grpo-s0", steps=[0]).to_pylist()
    step = shown.arms["grpo"][0]
    assert step["scale"] == pytest.approx(max(abs(v) for row in table for v in row["signal"]), rel=5e-3)
    for group in step["groups"]:
        rows = [row for row in table if row["prompt_idx"] == group["p"]]
        assert (group["of"], group["right"]) == (len(rows), sum(row["verdict"] for row in rows))
        assert sum(row["x"] for row in group["rows"]) == len(rows)
        for shown_row in group["rows"]:
            row = next(row for row in rows if row["completion"] == shown_row["c"])
            assert shown_row["s"] == pytest.approx(row["signal"], rel=5e-3)
            assert len(shown_row["s"]) == len(shown_row["l"]) == len(row["token_ids"]) == len(shown_row["c"])
    assert shown.arms["sft"][0]["groups"][0]["rows"][0]["l"] is None, (
        "nothing was sampled, so nothing had a probability"
    )


def test_partly_right_groups_are_chosen_first_and_the_choice_is_bounded(folder, monkeypatch):
    monkeypatch.setattr(tokens, "SHRINK", ((2, 2), (1, 1)))
    experiment, gaps = read_experiment(folder), []
    whole = shown_rollouts(experiment, gaps)
    assert [len(steps) for steps in whole.arms.values()] == [2, 2, 2] and whole.groups == 2
    monkeypatch.setattr(tokens, "SHRINK", ((2, 100), (2, 1)))
    every = shown_rollouts(experiment, gaps).arms["rft"]
    mixed = [[group["p"] for group in step["groups"] if 0 < group["right"] < group["of"]] for step in every]
    assert min(map(len, mixed)) == 1 and [step["of"] for step in every] == [6, 6]
    monkeypatch.setattr(tokens, "SHRINK", ((2, 1), (1, 1)))
    first = shown_rollouts(experiment, gaps).arms["rft"]
    assert [[group["p"] for group in step["groups"]] for step in first] == [found[:1] for found in mixed]
    monkeypatch.setattr(tokens, "SHRINK", ((2, 2), (1, 1)))
    size = len(json.dumps(whole.arms))
    monkeypatch.setattr(tokens, "MAX_BYTES", size - 1)
    assert shown_rollouts(experiment, gaps).groups == 1 and gaps == []
    monkeypatch.setattr(tokens, "MAX_BYTES", 100)
    assert shown_rollouts(experiment, gaps).arms == {} and "too long to show" in gaps[0]


def test_tokens_that_are_not_letters_are_shown_as_tokens():
    row = {"completion": "two words", "token_ids": [7, 9], "logps": [-0.1, -0.2], "signal": [0.5, 0.5], "reward": 1.0}
    row |= {
        "verdict": True,
        "kind": "correct",
        "advantage": 1.0,
        "finish_reason": "stop",
        "prompt_idx": 0,
        "prompt": "?",
    }
    assert tokens._row(row, True)["t"] == ["⟨7⟩", "⟨9⟩"]
    long = row | {"completion": "x" * 2000, "token_ids": [1] * 2000, "signal": [0.0] * 2000, "logps": [0.0] * 2000}
    assert (tokens._row(long, True)["cut"], len(tokens._row(long, True)["c"])) == (1400, 600)


# ── What is missing ─────────────────────────────────────────────────────────────────────────────────────────


def remove(*names):
    def action(folder):
        for name in names:
            for path in folder.glob(name):
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    return action


def overwrite(name, content):
    return lambda folder: [path.write_bytes(content) for path in folder.glob(name)]


@pytest.mark.parametrize(
    ("damage", "stated"),
    [
        (remove("*/rollouts.parquet"), "No completions were recorded."),
        (remove("grpo-s*/rollouts.parquet"), "No completions were recorded for grpo."),
        (remove("grpo-s0/rollouts.parquet"), "SFT: 0, GRPO: 1"),
        (remove("*/evals"), "grpo-s1 has no evaluations"),
        (remove("base-s*"), ""),
        (remove("*/metrics.jsonl"), "No run has a log of its training steps."),
        (remove("*/env.json"), "grpo-s0/env.json could not be read"),
        (remove("*/config.json"), "grpo-s0/config.json could not be read"),
        (remove("grpo-s1/model.safetensors"), "grpo-s1 is unfinished: 20 of 20 steps are logged."),
        (remove("grpo-s1"), "The run grpo-s1 is not there."),
        (remove("*-s*"), "The run sft-s0 is not there."),
        (remove("experiment.json"), "There is no experiment.json"),
        (overwrite("experiment.json", b"{"), "experiment.json could not be read"),
        (overwrite("experiment.json", b"[1]"), "experiment.json is not an object"),
        (
            overwrite("experiment.json", b'{"claims": [{"id": 1}, 3], "arms": 7, "seeds": "x"}'),
            "a claim could not be read",
        ),
        (overwrite("*/rollouts.parquet/*", b"not parquet"), "grpo-s0/rollouts.parquet could not be read"),
        (
            overwrite("*/evals/*", b'{"name": "greedy", "step": 1, "columns": {"set": []}}'),
            "grpo-s0/evals could not be read",
        ),
        (overwrite("*/evals/*", b"{"), "grpo-s0/evals could not be read"),
        (overwrite("grpo-s0/metrics.jsonl", b'{"step": 0}\n{"st'), "line 2 is cut off"),
        (overwrite("grpo-s0/metrics.jsonl", b"x\n{}\n"), "grpo-s0/metrics.jsonl could not be read"),
        (overwrite("*/env.json", b"7"), "grpo-s0/env.json could not be read"),
    ],
)
def test_what_is_missing_is_said(copy, damage, stated):
    damage(copy)
    text = visible(report(copy))
    assert stated in text and "this page" in text
    assert "Traceback" not in text


def test_an_unfinished_run_leaves_the_final_numbers(folder, tmp_path):
    broken = Path(shutil.copytree(folder, tmp_path / "broken"))
    (broken / "grpo-s1" / "evals" / "greedy-000040.json").unlink()
    kept = {label: shares(folder, "grpo", label)[[0, 2]].mean() for label in ("n14", "n16")}
    assert kept != {label: shares(folder, "grpo", label).mean() for label in kept}
    experiment = read_experiment(broken)
    assert {label: after(experiment, "grpo", "greedy", set=label).value for label in kept} == pytest.approx(kept)


def test_a_folder_with_nothing_is_refused_in_one_line(tmp_path):
    with pytest.raises(ValueError, match="holds nothing to report"):
        write_report(tmp_path)
    with pytest.raises(ValueError, match="is not a run folder"):
        write_run_report([tmp_path], tmp_path / "page.html")


# ── Loose runs ──────────────────────────────────────────────────────────────────────────────────────────────


def test_loose_runs_make_a_page_without_claims(tmp_path):
    three = (("one", "grpo", 0), ("two", "grpo", 0), ("two", "rft", 1))
    runs = [fake_run(tmp_path / place, arm, seed, LITTLE) for place, arm, seed in three]
    text = visible(write_run_report(runs, tmp_path / "page.html").read_text(encoding="utf-8"))
    assert "How did these runs go?" in text and "This page has no claims" in text
    assert "one GRPO" in text and "two GRPO" in text and "RFT" in text


def test_runs_of_one_arm_that_differ_are_never_averaged(tmp_path):
    same = [fake_run(tmp_path, "sft", seed, LITTLE) for seed in range(2)]
    assert read_loose_runs(same).arms == ("sft",)
    other = fake_run(tmp_path, "sft", 2, LITTLE)
    write_json(other / "config.json", read_json(other / "config.json") | {"learning_rate": 0.5})
    assert read_loose_runs([*same, other]).arms == ("sft-s0", "sft-s1", "sft-s2")


def test_a_folder_of_runs_stands_for_them(copy):
    (copy / "experiment.json").unlink()
    text = visible(write_run_report([copy], copy / "page.html").read_text(encoding="utf-8"))
    assert "with SFT after 20 steps" in text and "before training" in text
