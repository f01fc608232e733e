"""The page in a real browser: it opens without a sound, its controls work, it fits a phone, and model text stays text."""

import shutil

import pytest
from fake_panels import fake_lecture
from fake_runs import EVIL, Shape, fake_experiment, fake_run
from playwright.sync_api import expect, sync_playwright

from rlvr.lab.store import read_rollouts, write_rollouts
from rlvr.report import write_report, write_run_report, write_site

FLAGS = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
FLAGS += "--disable-component-update --disable-sync"
NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((path for name in NAMES if (path := shutil.which(name))), None)
REASON = f"the report was not tried in a browser: none of {', '.join(NAMES)} is on the PATH"

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=REASON)


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS.split())
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_report(fake_experiment(tmp_path_factory.mktemp("page"), shape=Shape(prompts=8)))


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """The index of three experiments; the pages of those with panels are written, the other one's isn't."""
    root = tmp_path_factory.mktemp("site")
    folders = fake_lecture(root, Shape(20, 10, 1, 3))
    for folder in folders[1:]:
        write_report(folder)
    return write_site(root, folders)


@pytest.fixture
def visit(browser):
    """Opens a file and returns the page with the list of everything that went wrong or went out."""
    contexts = []

    def open_page(path, width=1280, scheme="light"):
        # A smooth scroll would cost half a second a jump.
        how = {"color_scheme": scheme, "reduced_motion": "reduce"}
        context = browser.new_context(viewport={"width": width, "height": 900}, **how)
        contexts.append(context)
        page, sounds = context.new_page(), []
        page.on("console", lambda message: sounds.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: sounds.append(f"error: {error}"))
        page.on("requestfailed", lambda request: sounds.append(f"failed: {request.url[:80]}"))
        page.on("request", lambda request: outside(request.url, sounds))
        page.goto(path.as_uri())
        return page, sounds

    yield open_page
    for context in contexts:
        context.close()


def outside(url, sounds):
    if not url.startswith(("file:", "data:")):
        sounds.append(f"request: {url}")


def scroll_through(page):
    height = page.evaluate("document.documentElement.scrollHeight")
    for top in range(0, height, 700):
        page.evaluate(f"scrollTo(0, {top})")
        page.wait_for_timeout(15)
    page.wait_for_function(
        "[...document.querySelectorAll('.plot')].filter(p => p.offsetParent).every(p => p.querySelector('svg.main-svg'))"
    )


def background(page):
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def tick_colour(page):
    return page.evaluate("getComputedStyle(document.querySelector('.hero .plot .xtick text')).fill")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark"), (320, "light")])
@pytest.mark.parametrize("which", ["path", "index.html", "passk/report.html", "thinking/report.html"])
def test_it_opens_without_a_sound_and_fits(visit, path, index, which, width, scheme):
    page, sounds = visit(path if which == "path" else index.parent / which, width, scheme)
    scroll_through(page)
    for details in page.locator("main details").all():
        details.evaluate("element => { element.open = true; }")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    wide = page.evaluate(
        "[...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll, .plot, pre') &&"
        " e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 90))"
    )
    assert wide == []
    assert sounds == []


def test_the_first_screen_holds_answer_figure_and_claims(visit, path):
    page, _ = visit(path)
    page.wait_for_selector(".hero svg.main-svg")
    for part in ("h1", ".lede", ".hero .plot", ".ledger"):
        box = page.locator(part).bounding_box()
        assert box["y"] + box["height"] <= 900, part
    page.locator(".ledger a", has_text="RFT generalises worse").click()
    assert page.evaluate("document.querySelector(':target').id") == "claim-rft-worse-ood"


def test_a_page_full_of_gaps_opens_without_a_sound(visit, tmp_path):
    folder = fake_experiment(tmp_path, ("sft", "grpo"), 1, Shape(20, 10, 1, 3))
    for missing in ("rollouts.parquet", "evals"):
        for found in folder.glob(f"*/{missing}"):
            shutil.rmtree(found)
    for found in folder.glob("*/metrics.jsonl"):
        found.unlink()
    page, sounds = visit(write_report(folder))
    scroll_through(page)
    assert page.locator(".gap").count() > 5 and sounds == []


def test_loose_runs_open_without_a_sound(visit, tmp_path):
    run = fake_run(tmp_path, "grpo", 0, Shape(20, 10, 1, 3))
    page, sounds = visit(write_run_report([run], tmp_path / "page.html"))
    scroll_through(page)
    assert sounds == []


def test_the_theme_follows_the_system_and_the_button_turns_it(visit, path):
    page, sounds = visit(path, scheme="dark")
    page.wait_for_selector(".hero .plot .xtick text")
    night, ticks = background(page), tick_colour(page)
    assert night == "rgb(19, 20, 22)" and ticks == "rgb(176, 172, 163)"
    page.click("#theme")
    assert background(page) == "rgb(252, 251, 248)"
    page.wait_for_function(
        "getComputedStyle(document.querySelector('.hero .plot .xtick text')).fill === 'rgb(93, 89, 82)'"
    )
    page.click("#theme")
    page.wait_for_function(f"getComputedStyle(document.querySelector('.hero .plot .xtick text')).fill === '{ticks}'")
    assert background(page) == night and sounds == []


def test_tabs_show_one_figure_at_a_time_and_obey_the_arrow_keys(visit, path):
    page, sounds = visit(path)
    for section, count in (("curves", 4), ("failures", 5), ("cost", 3)):
        panels, tabs = page.locator(f"#{section} [role=tabpanel]"), page.locator(f"#{section} [role=tab]")
        assert panels.count() == tabs.count() == count
        captions = set()
        for index in range(count):
            tabs.nth(index).click()
            assert [each for each in range(count) if panels.nth(each).is_visible()] == [index]
            expect(panels.nth(index).locator("svg.main-svg").first).to_be_visible()
            captions.add(panels.nth(index).locator("figcaption").inner_text())
        assert len(captions) == count
        page.keyboard.press("ArrowRight")
        assert tabs.first.get_attribute("aria-selected") == "true" and panels.first.is_visible()
        assert page.evaluate("document.activeElement.id") == tabs.first.get_attribute("id")
    assert sounds == []


def shown(page):
    rows = page.locator("#group .answer").all()
    return {
        "count": page.locator("#count").inner_text(),
        "prompt": page.locator("#group > .prompt").inner_text() if rows else None,
        "problems": page.locator("#problems button").count(),
        "bright": [row.inner_text() for row in rows if "other" not in row.get_attribute("class")],
        "grey": [row.inner_text() for row in rows if "other" in row.get_attribute("class")],
    }


def choose(page, control, label):
    page.locator(f"#pick-{control} button", has_text=label).first.click()


def test_filters_change_what_is_shown(visit, path):
    page, sounds = visit(path)
    choose(page, "step", "0")
    every = shown(page)
    assert every["grey"] == [] and "32 of 32 answers fit, in 8 of 8 problems" in every["count"]
    choose(page, "verdict", "wrong")
    wrong = shown(page)
    assert wrong["problems"] < every["problems"] and wrong["grey"] and wrong["bright"]
    assert all("✗" in row for row in wrong["bright"]) and all("✓" in row for row in wrong["grey"])
    choose(page, "verdict", "right")
    assert all("✓" in row for row in shown(page)["bright"])
    choose(page, "verdict", "all")
    page.select_option("#pick-kind", label="unreadable")
    kind = shown(page)
    assert kind["problems"] == 1 and all("unreadable" in row for row in kind["bright"])
    page.select_option("#pick-kind", label="every kind")
    choose(page, "step", "30")
    assert shown(page)["prompt"] != every["prompt"]
    choose(page, "arm", "SFT")
    sft = shown(page)
    assert "8 of 8 answers fit" in sft["count"] and sft["problems"] == 8
    page.locator("#problems button").nth(3).click()
    assert shown(page)["prompt"] != sft["prompt"]
    choose(page, "verdict", "wrong")
    assert shown(page)["problems"] == 0 and "No answer of this step fits" in page.locator("#group").inner_text()
    assert sounds == []


def test_each_token_is_painted_by_its_signal_and_tells_its_numbers(visit, path):
    page, sounds = visit(path)
    choose(page, "step", "0")
    right = page.locator("#group .answer", has_text="✓").first
    wrong = page.locator("#group .answer", has_text="✗").first
    assert right.locator(".tok.up").count() == right.locator(".tok").count() > 0
    assert wrong.locator(".tok.down").count() == wrong.locator(".tok").count() > 0
    paint = "element => getComputedStyle(element).backgroundColor"
    assert right.locator(".tok").first.evaluate(paint) != wrong.locator(".tok").first.evaluate(paint)
    data = page.evaluate("JSON.parse(document.getElementById('rollouts').textContent).arms.grpo[0]")
    row = next(
        row for group in data["groups"] for row in group["rows"] if 0 < group["right"] < group["of"] and row["v"]
    )
    amount = right.locator(".tok").nth(1).evaluate("element => parseFloat(element.style.getPropertyValue('--amount'))")
    assert amount == pytest.approx(8 + 54 * abs(row["s"][1]) / data["scale"], abs=0.1)
    right.locator(".tok").nth(1).hover()
    told = page.locator("#readout").inner_text()
    assert told.startswith(row["c"][1]) and "token 2" in told and "made likelier" in told
    assert f"signal +{row['s'][1]:.3g}" in told
    assert f"log-probability {row['l'][1]:.3g}".replace("-", "−", 2).replace("log−", "log-") in told
    assert sounds == []


def test_equal_answers_are_one_line_with_their_number(visit, path):
    page, _ = visit(path)
    choose(page, "arm", "GRPO")
    choose(page, "step", "0")
    page.locator("#problems button", has_text="4/4 right").first.click()
    assert page.locator("#group .answer").count() == 1
    assert page.locator("#group .times").inner_text() == "× 4"


def test_model_text_is_shown_letter_by_letter_and_never_runs(visit, tmp_path):
    run = fake_run(tmp_path, "grpo", 0, Shape(20, 10, 1, 3))
    rows = read_rollouts(run, steps=[0]).to_pylist()
    wicked = {"prompt": EVIL, "completion": EVIL, "kind": EVIL}
    write_rollouts(run, 0, [row | wicked | {"rewards": dict(row["rewards"])} for row in rows])
    page, sounds = visit(write_run_report([run], tmp_path / "page.html"))
    choose(page, "step", "0")
    for place in ("#group > .prompt", "#group .answer .text"):
        assert EVIL in page.locator(place).first.evaluate("element => element.textContent"), place
    assert EVIL in page.locator("#group .verdict").first.inner_text()
    assert EVIL in page.locator("#pick-kind").inner_text()
    assert page.evaluate("typeof window.hacked") == "undefined"
    assert page.locator("#browser script, #browser img").count() == 0
    assert sounds == []


def test_even_markup_that_slipped_in_could_neither_run_nor_call_out(visit, path):
    page, sounds = visit(path)
    page.evaluate(
        "document.body.insertAdjacentHTML('beforeend',"
        ' \'<img src="data:,x" onerror="window.hacked = 1"><img src="http://localhost:9/x.png">\')'
    )
    page.wait_for_timeout(200)
    assert page.evaluate("typeof window.hacked") == "undefined"
    assert any("Content Security Policy" in sound for sound in sounds)


def test_a_finger_can_tap_a_token(browser, path):
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page = context.new_page()
    page.goto(path.as_uri())
    page.locator("#group .tok").first.tap()
    assert "token 1" in page.locator("#readout").inner_text()
    assert page.evaluate("visualViewport.width") <= 390
    context.close()


# ── Panels and the site ─────────────────────────────────────────────────────────────────────────────────────


def test_lines_have_their_names_at_their_ends_and_on_a_phone_in_a_legend(visit, index):
    for width, inside in ((1280, True), (390, False)):
        page, _ = visit(index.parent / "passk" / "report.html", width)
        page.wait_for_selector("#panel-0 svg.main-svg")
        names = page.locator("#panel-0 .annotation-text", has_text="GRPO").count()
        assert (names == 2) is inside and page.locator("#panel-0 .legend").is_visible() is not inside
        assert page.locator("#panel-0 .annotation-text", has_text="samples drawn").count() == 1
        plot, area = page.locator("#panel-0 .plot").bounding_box(), page.locator("#panel-0 .xy").first.bounding_box()
        assert area["width"] > 0.75 * plot["width"]


def test_texts_of_panels_never_run(visit, index):
    page, sounds = visit(index.parent / "passk" / "report.html")
    assert EVIL in page.locator("#panel-5 .completion").nth(1).inner_text()
    assert page.evaluate("typeof window.hacked") == "undefined" and page.locator("main img").count() == 0
    assert sounds == []


def test_the_ledger_is_filtered_by_verdict(visit, index):
    page, sounds = visit(index)
    rows = page.locator("#ledger tr[data-verdict]:visible")
    assert rows.count() == 7 and page.locator("#ledger .heading:visible").count() == 3
    page.locator("[data-filter=differs]").click()
    assert [row.get_attribute("data-verdict") for row in rows.all()] == ["differs", "differs"]
    assert page.locator("#ledger .heading:visible").count() == 2 and page.locator("#shown").inner_text() == "2 shown"
    page.locator("[data-filter='']").click()
    assert rows.count() == 7 and sounds == []


def test_one_walks_from_the_index_to_a_claim_and_back(visit, index):
    page, sounds = visit(index)
    page.locator("#ledger a", has_text="On n = 16 the curves cross").click()
    assert page.wait_for_selector(":target").get_attribute("id") == "claim-crossing-ood"
    page.locator(".up").click()
    page.wait_for_selector("#ledger")
    assert page.locator("#ledger").count() == 1 and page.locator(".card h3 a").count() == 2
    assert sounds == []
