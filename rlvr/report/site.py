"""The whole lecture on one page: a card for each experiment, the ledger of all claims, what it cost, and the checklist."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from rlvr.report.canvas import Chip, Figure, looks
from rlvr.report.checklist import Item, Lecture, checklist
from rlvr.report.claims import Row, claim_numbers, gauge, read_ledger, verdict_counts
from rlvr.report.data import Experiment, attempt, read_experiment
from rlvr.report.document import fill, write
from rlvr.report.page import INDEX, PLACE_OF_INDEX, UP
from rlvr.report.panels import shown_panels
from rlvr.report.plots import chips
from rlvr.report.results import curve_figure
from rlvr.report.spending import costs, total
from rlvr.report.summary import headline_set
from rlvr.report.thumbs import thumbnail

__all__ = ["Card", "write_site"]

PAGE = "report.html"


@dataclass(frozen=True)
class Card:
    """An experiment on the index: ``page`` is empty while its page isn't written, ``thumb`` is a small picture in SVG.

    >>> Card(Experiment("mine"), "", []).thumb
    ''
    """

    experiment: Experiment
    page: str
    verdicts: Sequence[tuple[str, int]]
    thumb: Markup | str = ""
    picture: str = ""
    legend: Sequence[Chip] = ()


def write_site(root: Path, folders: Sequence[Path]) -> Path:
    """Writes ``index.html`` in ``root`` about the experiments in ``folders`` and returns its path.

    Pages beside it that were written before it get their link to it. A folder that can't be read becomes a sentence.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as root:
    ...     write_site(Path(root), [Path(root, "passk")]).name
    'index.html'
    """
    root, gaps = Path(root), []
    experiments = _read(root, folders, gaps)
    rows = read_ledger(root, experiments, gaps)
    spent = costs(experiments)
    page = fill(
        "index.html",
        {},
        cards=[_card(root, folder, experiment, rows) for folder, experiment in experiments.items()],
        groups=_groups(root, experiments, rows),
        verdicts=verdict_counts([row.claim for row in rows]),
        count=len(rows),
        costs=[(experiments[folder], cost) for folder, cost in spent.items()],
        total=total(list(spent.values())),
        checklist=[_linked(root, experiments, item) for item in checklist(Lecture(experiments, rows))],
        quick=any(experiment.quick for experiment in experiments.values()),
        preliminary=any(row.preliminary for row in rows),
        gaps=gaps,
    )
    index = write(page, root / INDEX)
    for folder in experiments:
        _link_back(root / folder / PAGE)
    return index


def _read(root: Path, folders: Sequence[Path], gaps: list[str]) -> dict[str, Experiment]:
    found = {}
    for folder in folders:
        experiment = attempt(gaps, Path(folder).name, lambda folder=folder: read_experiment(Path(folder)), None)
        if experiment:
            found[Path(folder).name] = experiment
            missing = len(experiment.gaps)
            if missing:
                gaps.append(f"{Path(folder).name}: {missing} things are missing; its page names them.")
    return found


def _page(root: Path, folder: str) -> str:
    """The relative link to an experiment's page, empty while it isn't there."""
    return f"{folder}/{PAGE}" if folder and (root / folder / PAGE).is_file() else ""


def _card(root: Path, folder: str, experiment: Experiment, rows: Sequence[Row]) -> Card:
    own = [row.claim for row in rows if row.experiment == experiment.name] or experiment.claims
    figure, picture = _first_picture(experiment)
    page, verdicts = _page(root, folder), verdict_counts(own)
    if figure is None:
        return Card(experiment, page, verdicts)
    return Card(experiment, page, verdicts, thumbnail(figure), picture, figure.legend)


def _first_picture(experiment: Experiment) -> tuple[Figure | None, str]:
    """The first figure among the panels with its title, else the learning curve of the opening."""
    look = looks(experiment.arms)
    for panel in shown_panels(experiment.panels, look, []):
        if panel.figure:
            return panel.figure, panel.title
    figure = curve_figure(experiment, look, headline_set(experiment), "hero")
    if figure is None:
        return None, ""
    return figure._replace(legend=chips(list(look.values()))), figure.caption.partition(".")[0]


def _groups(
    root: Path, experiments: Mapping[str, Experiment], rows: Sequence[Row]
) -> list[tuple[str, list[tuple[Row, Mapping | None, str, str, str]]]]:
    """The ledger by experiment: its title, and each row with its gauge, its numbers and the link to it."""
    titles = {experiment.name: experiment.title for experiment in experiments.values()}
    groups: dict[str, list] = {}
    for row in rows:
        there = row.page and (root / row.page).is_file()
        link = f"{row.page}#claim-{row.claim.id}" if there else ""
        cells = (row, gauge(row.claim), *claim_numbers(row.claim), link)
        groups.setdefault(titles.get(row.experiment, row.experiment), []).append(cells)
    return list(groups.items())


def _linked(root: Path, experiments: Mapping[str, Experiment], item: Item) -> tuple[Item, list[tuple[str, str]]]:
    """An item of the checklist with the places that show it: words and link."""
    links = []
    for folder, anchor in item.where:
        page = _page(root, folder)
        if not folder or page:
            links.append((experiments[folder].name.replace("_", " ") if folder else "the ledger", f"{page}#{anchor}"))
    return item, links


def _link_back(page: Path) -> None:
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    if PLACE_OF_INDEX in text:
        write(text.replace(PLACE_OF_INDEX, UP, 1), page)
