"""The site of the whole lecture: its ledger, its links, its sums, and a checklist whose answers follow the folders."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from fake_panels import fake_lecture
from fake_runs import CLAIMS, EVIL, Shape, fake_run
from read_pages import tags, visible

from rlvr.lab.jsonl import iter_jsonl, read_json, write_json
from rlvr.report import write_report, write_site
from rlvr.report.canvas import Figure
from rlvr.report.checklist import Lecture, checklist
from rlvr.report.claims import read_ledger
from rlvr.report.data import read_experiment
from rlvr.report.spending import costs, total
from rlvr.report.thumbs import thumbnail

LITTLE = Shape(steps=20, every=10, per_k=1, prompts=3)
NAMES = ("three_methods", "passk", "thinking")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A whole site: pages first, as an experiment writes them, then the index."""
    root = tmp_path_factory.mktemp("lecture")
    folders = fake_lecture(root, LITTLE)
    before = [write_report(folder).read_text(encoding="utf-8") for folder in folders]
    write_site(root, folders)
    return root, before


@pytest.fixture(scope="module")
def root(built):
    return built[0]


@pytest.fixture(scope="module")
def index(root):
    return (root / "index.html").read_text(encoding="utf-8")


@pytest.fixture
def copy(root, tmp_path):
    """A lecture that a test may damage."""
    return Path(shutil.copytree(root, tmp_path / "lecture"))


def folders(root):
    return [root / name for name in NAMES]


def site(root):
    return write_site(root, folders(root)).read_text(encoding="utf-8")


def lecture(root):
    experiments = {name: read_experiment(root / name) for name in NAMES}
    return Lecture(experiments, read_ledger(root, experiments, []))


def answers(found):
    """Answer and finding by a word of the question."""
    words = {"family": "base", "paid at random": "random", "several seeds": "seeds", "interval": "intervals"}
    words |= {"pass@k": "large k", "budget": "budget", "tuned": "tuning", "like for like": "footing"}
    words |= {"beforehand": "rules", "plain alternative": "baselines", "large enough": "problems"}
    words |= {"greedy": "decoding", "test relates": "distribution", "not paid by": "truth", "grew": "length"}
    words |= {"stranger": "again"}
    named = {name: item for item in checklist(found) for word, name in words.items() if word in item.asked}
    assert len(named) == len(words) == 16
    return named


# ── The index ───────────────────────────────────────────────────────────────────────────────────────────────


def test_the_ledger_has_every_claim_with_rule_numbers_verdict_and_reason(root, index):
    text = visible(index)
    for row in read_json(root / "ledger.json")["claims"]:
        assert index.count(f'id="ledger-{row["experiment"]}-{row["id"]}"') == 1
    assert "Rule: holds if n = 8 is above 95 % and n = 12 below 40 %." in text
    assert "44.0 % [37.3, 50.9], n = 200" in text and "29.5 %" in text
    assert "Our base reads positions it was never trained on better than the lecture's does." in text
    assert "7 claims : 4 ✓ holds , 2 ≠ differs , 1 ? undecided ." in re.sub(r" ?([:,.]) ", r" \1 ", text)
    ledger = visible(index[index.index('id="ledger"') : index.index('id="checklist"')])
    assert ledger.count("preliminary") == 2, "both claims of the experiment with one seed"
    assert index.count('data-verdict="differs"') == 2 and index.count('data-verdict="holds"') == 4


def test_a_card_has_question_answer_picture_and_verdicts(index):
    cards = index.split('<article class="card">')[1:]
    assert len(cards) == 3 and all('<svg class="thumb"' in card for card in cards)
    passk = visible(cards[1])
    assert "does the base still solve problems" in passk and "On n = 12 it never does." in passk
    assert "1 ✓ holds" in passk and "1 ≠ differs" in passk and "preliminary: fewer than three seeds" in passk
    assert "GRPO, exact" in passk and "preliminary" not in visible(cards[0])


def test_every_link_of_the_site_leads_somewhere(root, index):
    links = re.findall(r'href="([^"#]*)(?:#([^"]*))?"', index)
    assert len(links) > 40
    for path, anchor in set(links):
        if path == "data:,":
            continue
        target = (root / path).read_text(encoding="utf-8") if path else index
        assert not anchor or f'id="{anchor}"' in target, (path, anchor)


def test_pages_link_back_once_there_is_an_index(built, tmp_path):
    root, before = built
    for folder, early in zip(folders(root), before, strict=True):
        page = (folder / "report.html").read_text(encoding="utf-8")
        assert 'href="../index.html"' in page and 'href="../index.html"' not in early
        assert write_report(folder).read_text(encoding="utf-8") == page, (
            "the same bytes, written before or after the index"
        )
    alone = Path(shutil.copytree(root / "passk", tmp_path / "site" / "passk"))
    (tmp_path / "site" / "index.html").write_text("<!doctype html><title>somebody else's</title>")
    assert 'href="../index.html"' not in write_report(alone).read_text(encoding="utf-8")


def test_the_same_folders_give_the_same_index_without_a_path_of_the_machine(root, index):
    assert site(root) == index and str(root) not in index
    assert not re.findall(r"""(?:src|href)\s*=\s*["']?\s*(?:https?:)?//""", index) and len(index) < 300_000


def test_texts_of_claims_and_experiments_are_escaped(copy):
    row = CLAIMS[0] | dict.fromkeys(
        ("id", "claim", "rule", "lecture", "measured", "verdict", "why", "experiment"), EVIL
    )
    write_json(copy / "ledger.json", {"claims": [row]})
    record = read_json(copy / "passk" / "experiment.json")
    write_json(
        copy / "passk" / "experiment.json", record | dict.fromkeys(("name", "title", "question", "answer"), EVIL)
    )
    page = site(copy)
    assert not {"think", "img"} & set(tags(page)) and visible(page).count(EVIL) > 8 and EVIL not in page


# ── What is missing ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("ledger", "stated"),
    [
        (b"{", "ledger.json could not be read"),
        (b"7", "ledger.json has no list of claims"),
        (b'{"claims": 7}', "ledger.json has no list of claims"),
        (b'{"claims": [7, {"experiment": "passk"}]}', "row 1 of ledger.json could not be read: KeyError: 'id'."),
        (
            b'{"claims": [{"experiment": "x", "id": "a", "claim": "A", "lo": "b"}]}',
            "row 0 of ledger.json could not be read",
        ),
    ],
)
def test_a_broken_ledger_is_said(copy, ledger, stated):
    (copy / "ledger.json").write_bytes(ledger)
    text = visible(site(copy))
    assert stated in text and "No claim has been judged yet." in text


def test_without_a_ledger_the_claims_are_those_of_the_experiments(copy, index):
    (copy / "ledger.json").unlink()
    assert site(copy).count("data-verdict=") == index.count("data-verdict=") == 7


def test_missing_pages_and_folders_are_said_and_never_linked(copy):
    (copy / "passk" / "report.html").unlink()
    page = write_site(copy, [*folders(copy), copy / "hacking"]).read_text(encoding="utf-8")
    assert "passk/report.html" not in page and "Its page hasn't been written." in visible(page)
    assert "hacking could not be read: ValueError: " in visible(page)
    assert "holds nothing to report" in visible(page)


def test_an_index_of_nothing_stands(tmp_path):
    text = visible(site(tmp_path))
    assert "There is no experiment here." in text and "3 things are missing" in text and "There are no claims." in text


# ── Sums ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_costs_are_those_of_the_folders_and_a_shared_base_counts_once(root, index):
    found = costs({name: read_experiment(root / name) for name in NAMES})
    runs = list(root.glob("*/*-s*/metrics.jsonl"))
    last = [list(iter_jsonl(path))[-1] for path in runs]
    jobs = [read_json(path) for path in root.glob("*/*/result.json")]
    whole = total(list(found.values()))
    assert whole.seconds == pytest.approx(sum(row["seconds"] for row in [*last, *jobs]))
    assert whole.samples == sum(row["samples"] for row in [*last, *jobs]) == 204_800 + 14 * 20 * 12
    assert (found["three_methods"].runs, found["passk"].runs, found["thinking"].runs) == (9 + 3, 0, 8)
    assert whole.jobs == 2 and whole.untimed == 3 and found["passk"].seconds == 25
    assert f"{whole.samples:,} sampled answers" in visible(index)
    assert f"All of it took at least {whole.seconds / 60:.1f} minutes" in visible(index), "three bases recorded no time"


# ── The checklist ───────────────────────────────────────────────────────────────────────────────────────────


def test_the_checklist_answers_what_the_folders_show(root):
    found = answers(lecture(root))
    given = {name: item.answer for name, item in found.items()}
    no = {"base", "random", "tuning", "problems"}
    assert {name for name, answer in given.items() if answer == "no"} == no
    assert {name for name, answer in given.items() if answer == "yes"} == set(given) - no
    assert found["seeds"].found.startswith("5 of 5 arms") and "one problem is 25 points" in found["problems"].found
    assert found["large k"].where == [("passk", "panel-0")] and "1,048,576" in found["large k"].found


def _without(path):
    return lambda root: shutil.rmtree(root / path)


def _random_arm(root):
    run = fake_run(root / "thinking", "think0", 0, LITTLE)
    config = read_json(run / "config.json")
    write_json(run / "config.json", config | {"recipe": {"rewards": {"random": 1.0}}})


def _short_run(root):
    run = root / "thinking" / "think0-s0" / "config.json"
    write_json(run, read_json(run) | {"steps": 7})


def _two_bases(root):
    for path in (root / "thinking").glob("think0-s*/config.json"):
        write_json(path, read_json(path) | {"base": "think0-s0-abc"})


def _silent_log(root):
    path = root / "thinking" / "think0-s4" / "metrics.jsonl"
    rows = [{"step": row["step"], "reward": row["reward"]} for row in iter_jsonl(path)]
    path.write_text("".join(f'{{"step": {row["step"]}, "reward": 1}}\n' for row in rows), encoding="utf-8")


def _small_k(root):
    record = read_json(root / "passk" / "experiment.json")
    write_json(root / "passk" / "experiment.json", record | {"panels": record["panels"][1:]})


def _no_reason(root):
    rows = read_json(root / "ledger.json")["claims"]
    write_json(root / "ledger.json", {"claims": [row | {"why": ""} for row in rows]})


def _no_interval(root):
    rows = read_json(root / "ledger.json")["claims"]
    write_json(root / "ledger.json", {"claims": [rows[0] | {"lo": None, "rule": ""}, *rows[1:]]})


@pytest.mark.parametrize(
    ("change", "moved"),
    [
        (_without("thinking/think10-s1"), {"seeds": "partly"}),
        (_random_arm, {"random": "yes", "distribution": "yes"}),
        (_short_run, {"footing": "partly"}),
        (_two_bases, {"base": "partly"}),
        (_silent_log, {"budget": "partly", "truth": "partly", "length": "partly"}),
        (_small_k, {"large k": "no"}),
        (_no_interval, {"intervals": "partly", "rules": "partly"}),
        (_no_reason, {"rules": "partly"}),
        (_without("thinking/think0-s2/evals"), {}),
    ],
)
def test_an_answer_moves_with_the_folders_and_no_other_does(root, copy, change, moved):
    before = {name: item.answer for name, item in answers(lecture(root)).items()}
    change(copy)
    after = {name: item.answer for name, item in answers(lecture(copy)).items()}
    assert after == before | moved


def test_tuning_counts_the_values_of_each_method():
    from rlvr.report.data import Experiment

    def tuned(*arms):
        return answers(Lecture({"search": replace(Experiment("search"), arms=arms)}, []))["tuning"].answer

    assert tuned("sft-0.1", "sft-0.2", "grpo-0.1", "grpo-0.2") == "yes"
    assert tuned("sft-0.1", "grpo-0.1", "grpo-0.2") == tuned("sft", "grpo") == "no"


# ── Small pictures ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_small_picture_keeps_the_shape_and_the_holes():
    trace = {"type": "scatter", "mode": "lines", "line": {"color": "#2f6fb0"}, "x": [1, 10, 100, 1000]}
    layout = {"xaxis": {"type": "log"}, "yaxis": {"range": [0, 100]}}
    picture = thumbnail(Figure("a", {"data": [trace | {"y": [0, 50, None, 100]}], "layout": layout}, "<b>"))
    lines = [
        [tuple(map(float, p.split(","))) for p in line.split()] for line in re.findall(r'points="([^"]*)"', picture)
    ]
    assert [len(line) for line in lines] == [2, 1] and "var(--arm-0)" in picture and "<b>" not in picture
    (left, bottom), (third, middle), (right, top) = lines[0][0], lines[0][1], lines[1][0]
    assert (bottom, middle, top) == (127.0, 66.0, 5.0) and third - left == pytest.approx((right - left) / 3, abs=0.2)
