"""Panels: plain data becomes figures, tables and texts; texts stay text; what can't be drawn becomes a sentence."""

import math
import re
from copy import deepcopy

import pytest
from fake_panels import PANELS, fake_passk, fake_thinking
from fake_runs import EVIL, Shape
from read_pages import block, tags, visible

from rlvr.lab.jsonl import read_json, write_json
from rlvr.report import write_report
from rlvr.report.canvas import looks
from rlvr.report.data import read_experiment
from rlvr.report.panels import shown_panels
from rlvr.report.theme import ARMS, dark_twins

LITTLE = Shape(steps=20, every=10, per_k=1, prompts=3)
TRAINING = ("curves", "where", "failures", "signal", "training", "cost", "completions", "numbers", "settings")


@pytest.fixture(scope="module")
def passk(tmp_path_factory):
    return fake_passk(tmp_path_factory.mktemp("panels"))


@pytest.fixture(scope="module")
def page(passk):
    return write_report(passk).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def thinking(tmp_path_factory):
    return fake_thinking(tmp_path_factory.mktemp("thinking"), LITTLE)


def report(folder):
    return write_report(folder).read_text(encoding="utf-8")


def lines(*series, **changes):
    return {"type": "lines", "key": "mine", "title": "T", "series": list(series), "x_title": "k"} | changes


def drawn(panel, arms=()):
    """The traces and the layout of a panel's figure."""
    (found,) = shown_panels([panel], looks(arms), gaps := [])
    assert gaps == [], gaps
    return found.figure.spec["data"], found.figure.spec["layout"]


# ── Figures ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_line_has_its_values_in_percent_and_a_band_around_it():
    series = {"label": "a", "x": [1, 2], "y": [0.2, 0.4], "lo": [0.1, 0.3], "hi": [0.3, 0.5]}
    (band, line), _ = drawn(lines(series))
    assert line["y"] == [20, 40] and line["x"] == [1, 2]
    assert band["x"] == [1, 2, 2, 1] and band["y"] == pytest.approx([10, 30, 50, 30])
    assert band["fillcolor"] in dark_twins() and band["fillcolor"].startswith(line["line"]["color"])
    (_, line), _ = drawn(lines(series, percent=False))
    assert line["y"] == [0.2, 0.4]


def test_holes_stay_holes_and_split_the_band():
    ys = [0.2, None, 0.4, math.nan, 0.3]
    series = {"label": "a", "x": [1, 2, 3, 4, 5], "y": ys, "lo": [0.1, 0.1, None, 0.1, 0.1], "hi": [0.5] * 5}
    (first, second, line), _ = drawn(lines(series))
    assert first["x"] == [1, 2, 2, 1] and second["x"] == [4, 5, 5, 4]
    assert [None if y is None else round(y) for y in line["y"]] == [20, None, 40, None, 30]


def test_a_logarithmic_axis_names_powers_of_ten_and_drops_what_has_no_place():
    series = {"label": "a", "x": [0, 1, 10, 100, 1000, 10_000, 100_000, 1_000_000], "y": [0.5] * 8}
    panel = lines(series, log_x=True, marks=[[512, "drawn"]], caption="C.")
    traces, layout = drawn(panel)
    assert traces[-1]["x"][0] == 1 and layout["xaxis"]["ticktext"] == ["1", "10", "100", "1k", "10k", "100k", "1M"]
    (mark,), (shape,) = layout["annotations"], layout["shapes"]
    assert mark["text"] == "drawn" and mark["x"] == pytest.approx(math.log10(512)) and shape["x0"] == 512
    (found,) = shown_panels([panel], {}, [])
    assert found.figure.caption == "C. Points that this axis has no place for: 1."


def test_an_empty_series_is_named_and_the_others_are_drawn():
    good, empty = {"label": "a", "x": [1], "y": [0.5]}, {"label": "b", "x": [], "y": []}
    (found,) = shown_panels([lines(good, empty, {"label": "c", "x": [1], "y": [None]})], {}, [])
    assert [trace["name"] for trace in found.figure.spec["data"]] == ["a"]
    assert found.figure.caption == "Without a point to draw: b, c."


def test_an_axis_of_shares_shows_all_or_zooms_and_differences_have_a_zero_line():
    def axis(*ys):
        return drawn(lines({"label": "a", "x": list(range(len(ys))), "y": list(ys)}))[1]

    assert axis(0.2, 0.9)["yaxis"]["range"] == [-3, 104]
    assert axis(0.001, 0.02)["yaxis"]["range"] == pytest.approx([0, 2.12])
    apart = axis(-0.1, 0.3)
    assert apart["yaxis"]["range"][0] < -10 and [shape["y0"] for shape in apart["shapes"]] == [0]
    assert axis(0.0, 0.0)["yaxis"]["range"][1] > 0


def test_an_arm_keeps_its_colour_in_every_panel_and_others_take_none_of_it():
    one = {"label": "exact", "x": [1], "y": [0.5], "arm": "grpo", "dashed": True}
    other, base = {"label": "chance", "x": [1], "y": [0.1]}, {"label": "start", "x": [1], "y": [0.2], "arm": "base"}
    traces, _ = drawn(lines(other, one, base), ("sft", "grpo"))
    colours = {trace["name"]: trace["line"] for trace in traces}
    assert colours["exact"] == {"color": ARMS[1].light, "dash": "dash", "width": 2.4}
    assert colours["chance"]["color"] not in (ARMS[1].light, colours["start"]["color"])
    # Arms that no run has: the first that appears has the first colour, in all panels.
    new = [lines({"label": "x", "x": [1], "y": [0.5], "arm": arm}) for arm in ("rft", "sft", "rft")]
    found = [panel.figure.spec["data"][0]["line"]["color"] for panel in shown_panels(new, {}, [])]
    assert found == [ARMS[0].light, ARMS[1].light, ARMS[0].light]


def test_lines_of_one_arm_differ_by_their_dashes():
    one = {"label": "run", "x": [1], "y": [0.5], "arm": "grpo", "dashed": True}
    traces, _ = drawn(lines(*(one | {"label": str(run)} for run in range(4)), one | {"dashed": False}))
    assert len({(trace["line"]["color"], trace["line"]["dash"]) for trace in traces}) == 5
    (found,) = shown_panels([lines(one, {"label": "b", "x": [1], "y": [0.1]})], looks(("grpo",)), [])
    assert [chip.dash for chip in found.figure.legend] == ["dash", "solid"]
    assert traces[0]["line"]["dash"] == "dash" and traces[4]["line"]["dash"] == "solid"


def test_many_arms_share_colours_and_differ_by_their_dashes():
    found = looks([f"arm{'abcdefghij'[index]}" for index in range(10)])
    assert len({(look.variable, look.dash) for look in found.values()}) == 10


def test_bars_are_stacked_from_their_parts_and_kinds_have_their_own_colours():
    rows = [["base", {"lookup": 0.75, "no_bar": 0.25}], ["GRPO", {"lookup": None}]]
    panel = {"type": "bars", "title": "T", "rows": rows, "parts": ["no_bar", "lookup"], "x_title": "share"}
    traces, layout = drawn(panel)
    assert [trace["name"] for trace in traces] == ["never stops", "wrong step"]
    assert [trace["x"] for trace in traces] == [[25, 0], [75, 0]] and layout["xaxis"]["range"] == [0, 100]
    alone, _ = drawn(panel | {"parts": ["lookup"], "rows": [["base", {"lookup": 0.5}]]})
    assert alone[0]["marker"]["color"] == traces[1]["marker"]["color"]
    counts, layout = drawn(panel | {"rows": [["a", {"x": 2.96}], ["b", {"x": 1.44}]], "parts": ["x"], "percent": False})
    assert (
        counts[0]["x"] == [2.96, 1.44] and counts[0]["text"] == ["2.96", "1.44"] and layout["xaxis"]["range"][1] > 2.96
    )


def test_a_table_has_numbers_as_numbers_and_words_as_they_are():
    rows = [["a", 1234567, 0.123456, -2.5], [EVIL, True, math.nan, None]]
    (found,) = shown_panels([{"type": "table", "title": "T", "columns": list("wxyz"), "rows": rows}], {}, [])
    assert found.table.rows == [["a", "1,234,567", "0.1235", "−2.5"], [EVIL, "yes", "—", "—"]]
    assert found.table.wordy == [True, False, False, False]


# ── What can't be drawn ─────────────────────────────────────────────────────────────────────────────────────

BAR = {"type": "bars", "title": "T", "rows": [["a", {"x": 1}]], "parts": ["x"]}
ONE = {"label": "mine", "x": [1, 2], "y": [0.5, 0.5]}


@pytest.mark.parametrize(
    ("panel", "stated"),
    [
        (7, "it is 7, not an object"),
        ({"title": "T"}, "its type is None; accepted: lines, bars, table, texts"),
        ({"type": EVIL}, "its type is "),
        ({"type": "lines"}, "KeyError: 'series'"),
        (lines(), "no series has a point to draw"),
        (lines({"label": "mine", "x": [1, 2], "y": [None, None]}), "no series has a point to draw"),
        (lines({"label": "mine", "x": [0], "y": [1]}, log_x=True), "no series has a point to draw"),
        (lines(ONE | {"y": [0.5]}), "series mine: 2 values of x and 1 of y"),
        (lines(ONE | {"lo": [0.1], "hi": [0.2]}), "series mine: 2 values of x and 1 of lo"),
        (lines(ONE | {"y": ["a", 1]}), "y of series mine is 'a', not a number"),
        (lines(ONE | {"lo": [0.1, 0.1]}), "series mine: a band needs both lo and hi"),
        (lines(3), "a series is 3, not an object"),
        (BAR | {"parts": ["y"]}, "the rows have x, which is not among its parts y"),
        (BAR | {"rows": []}, "no row has a bar to draw"),
        (BAR | {"rows": [["a", {"x": None}]]}, "no row has a bar to draw"),
        ({"type": "table", "columns": ["a"], "rows": [[1, 2]]}, "a row has 2 cells, not 1"),
        ({"type": "table", "columns": ["a"], "rows": []}, "it has no rows"),
        ({"type": "texts", "rows": []}, "it has no texts"),
        ({"type": "texts", "rows": [["a"]]}, "not enough values"),
    ],
)
def test_what_cannot_be_drawn_is_said_in_its_place(panel, stated):
    first, broken, last = shown_panels([BAR, panel, BAR], {}, gaps := [])
    assert first.figure and last.figure and not (broken.figure or broken.table or broken.texts)
    assert stated in broken.gap and gaps == [broken.gap] and broken.anchor == "panel-1"


def test_a_page_with_broken_panels_stands(passk, tmp_path):
    folder = fake_passk(tmp_path, panels=[7, {"type": "lines", "title": EVIL}, "x", *PANELS[2:]])
    page = report(folder)
    assert "3 things are missing" in visible(page) and EVIL in visible(page) and "img" not in tags(page)
    write_json(folder / "experiment.json", read_json(folder / "experiment.json") | {"panels": {"a": 1}, "answer": 3})
    assert "Nothing was drawn for this page." in visible(report(folder))


# ── Texts of models (B117) ──────────────────────────────────────────────────────────────────────────────────


def test_completions_are_shown_letter_by_letter(page):
    section = page[page.index("What does it write") :]
    assert "&lt;think&gt;2&lt;3 &amp; 4&gt;1&lt;/think&gt;" in section
    assert EVIL not in page and not {"think", "img"} & set(tags(page))
    assert visible(page).count(EVIL) == 3, "a completion, a note, and a cell of a table"
    assert "verifier 1.00␀, truth 0" in visible(page)


def test_a_long_completion_is_cut_and_says_so_and_an_empty_one_too(tmp_path):
    texts = {"type": "texts", "title": "T", "rows": [["a", "p", "x" * 4000, ""], ["b", "p", "", ""]]}
    text = visible(report(fake_passk(tmp_path, panels=[texts])))
    assert "x" * 3000 + " and 1,000 more characters" in text and "an empty answer" in text


def test_all_words_of_panels_are_escaped(tmp_path):
    panels = deepcopy(PANELS)
    for panel in panels:
        panel |= dict.fromkeys(("key", "title", "text", "caption", "x_title", "y_title"), EVIL)
    panels[0]["series"][0]["label"] = panels[0]["marks"][0][1] = panels[2]["rows"][0][0] = EVIL
    page = report(fake_passk(tmp_path, panels=panels, answer=EVIL, question=EVIL))
    assert not {"think", "img"} & set(tags(page)) and visible(page).count(EVIL) > 12
    figures = block(page, "figures")
    assert all("<script" not in text for text in texts_of(figures["panel-0"]) + texts_of(figures["panel-2"]))


def texts_of(value):
    """Every text in a figure: plotly reads some of them as markup."""
    if isinstance(value, dict):
        return [text for item in value.values() for text in texts_of(item)]
    return [text for item in value for text in texts_of(item)] if isinstance(value, list) else [str(value)]


# ── Where it stands ─────────────────────────────────────────────────────────────────────────────────────────


def test_question_answer_picture_claims_evidence(page):
    order = ["<h1>", 'class="question"', 'class="lede"', 'id="panel-0"', 'id="claims"', 'id="evidence"', 'id="panel-1"']
    places = [page.index(mark) for mark in [*order, 'id="panel-5"', 'id="again"']]
    assert places == sorted(places)
    assert "On n = 12 it never does." in visible(page[: page.index('id="panel-0"')])


def test_an_experiment_without_arms_has_no_sections_about_training(page, thinking):
    assert not [name for name in TRAINING if f'id="{name}"' in page or f'href="#{name}"' in page]
    other = report(thinking)
    assert [name for name in TRAINING if f'<section id="{name}"' in other] == list(TRAINING)
    for each in (page, other):
        assert set(re.findall(r'href="#([^"]*)"', each)) <= set(re.findall(r'id="([^"]*)"', each))
        assert sorted(re.findall(r'data-figure="([^"]*)"', each)) == sorted(block(each, "figures"))


def test_fewer_than_three_seeds_say_so_at_every_number(passk, page, tmp_path):
    text = visible(page)
    assert "preliminary: fewer than three seeds" in text
    assert text.count("preliminary") == 1 + 1 + 1 + 2 + len(PANELS), "title, tally, claims, each claim, each panel"
    assert not read_experiment(fake_passk(tmp_path, seeds=[0, 1, 2], preliminary=False)).preliminary
    assert read_experiment(fake_passk(tmp_path, seeds=[0, 1], preliminary=False)).preliminary


def test_jobs_are_no_runs(passk):
    experiment = read_experiment(passk)
    assert [run.folder.name for run in experiment.bases] == ["base-s0"] and experiment.runs == ()
    assert [job.name for job in experiment.jobs] == ["samples", "tree-grpo-s0"] and experiment.gaps == ()


def test_several_bases_stand_apart_and_an_arm_has_seeds_of_its_own(thinking):
    experiment = read_experiment(thinking)
    assert experiment.base_kinds == ["base_think10", "base_think0"] and experiment.gaps == ()
    assert [len(experiment.of(arm)) for arm in experiment.arms] == [3, 5]
    page = report(thinking)
    assert "think10 before training" in visible(page) and "think0 before training" in visible(page)
    assert not [
        note for note in block(page, "figures")["curve-n12"]["layout"]["annotations"] if "before" in note["text"]
    ]
    rows = read_json(thinking / "experiment.json")
    write_json(thinking / "experiment.json", rows | {"seeds_of": {"think0": [0, 9]}})
    assert read_experiment(thinking).gaps == ("The run think0-s9 is not there.",)
    write_json(thinking / "experiment.json", rows)


def test_an_alarm_is_a_cross_on_the_curve_and_a_sentence(thinking):
    page = report(thinking)
    text = visible(page)
    assert "Where it fired: think0 first at step 12 (seed 0), 12 (seed 1)" in text
    assert "Reward and truth parted with think0: where and when" in text
    traces = block(page, "figures")["metric-accuracy"]["data"]
    (cross,) = [trace for trace in traces if trace["name"] == "divergence alarm"]
    assert cross["x"] == [12, 12] and cross["customdata"] == [0, 1]
    mean = next(trace for trace in traces if trace["name"] == "think0")
    assert cross["y"] == pytest.approx([mean["y"][mean["x"].index(12)]] * 2)
