"""Brings README.md up to date: the tree from the docstrings and, from finished experiments, the ledger and the picture.

python docs/readme.py            the tree
python docs/readme.py runs       the tree, the ledger of all experiments in runs/, and docs/report.png (needs chromium)
"""

import ast
import shutil
import sys
from collections import Counter
from pathlib import Path

from rlvr.lab.jsonl import read_json

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
ROOMS = ("algo", "stats", "tasks", "policy", "rewards", "lab", "experiments", "report", "interop", "cli")
WIDTH, HEIGHT = 1200, 725


def between(text: str, name: str, inside: str) -> str:
    """The text with what stands between its two comments of that name replaced."""
    first, last = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    head, rest = text.split(first)
    return head + first + inside + last + rest.split(last)[1]


def first_sentence(path: Path) -> str:
    """The first sentence of a module's docstring, without its full stop."""
    text = (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").split("\n\n")[0]
    return " ".join(text.split()).split(". ")[0].rstrip(".")


def tree() -> str:
    """One line a file, room by room."""
    lines = ["rlvr/"]
    files = [ROOT / "rlvr/types.py", ROOT / "rlvr/rng.py"]
    for room in ROOMS:
        files += sorted((ROOT / "rlvr" / room).glob("*.py"))
    files += sorted((ROOT / "examples").glob("*.py")) + sorted((ROOT / "benchmarks").glob("*.py"))
    room = "rlvr"
    for path in files:
        name = path.relative_to(ROOT)
        if str(name.parent) != room:
            room = str(name.parent)
            about = first_sentence(path) if path.name == "__init__.py" else ""
            lines.append(f"{room.removeprefix('rlvr/') + '/':16} {about}".rstrip())
        if path.name not in ("__init__.py", "__main__.py"):
            lines.append(f"  {path.name:20} {first_sentence(path)}")
    return "```\n" + "\n".join(lines) + "\n```\n"


def ledger(root: Path) -> str:
    """The claims of all finished experiments, a table each, and how many hold."""
    rows = read_json(root / "ledger.json")["claims"]
    counts = Counter(row["verdict"] for row in rows)
    words = ", ".join(f"{counts[verdict]} {verdict}" for verdict in ("holds", "differs", "undecided"))
    lines = [f"{len(rows)} claims: {words}."]
    for name in dict.fromkeys(row["experiment"] for row in rows):
        mine = [row for row in rows if row["experiment"] == name]
        summary = read_json((root / mine[0]["page"]).parent / "experiment.json")
        label = " (preliminary)" if mine[0]["preliminary"] else ""
        lines += ["", f"### {summary['title']}{label}", "", *filter(None, [summary["answer"]]), ""]
        lines += ["| claim | the lecture | here | verdict |", "|---|---|---|---|"]
        for row in mine:
            cells = (row["claim"], row["lecture"], row["measured"], f"**{row['verdict']}**")
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        lines += ["", f"{len(summary['seeds'])} seeds; made by `{summary['command']}`."]
    return "\n".join(lines) + "\n"


def picture(experiment: Path) -> None:
    """The top of the report as docs/report.png."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        options = ["--no-sandbox", "--disable-gpu"]
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=options)
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto((experiment / "report.html").resolve().as_uri())
        page.wait_for_timeout(1500)
        page.screenshot(path=ROOT / "docs/report.png")
        browser.close()


def main() -> None:
    """Rewrite README.md in place."""
    text = between(README.read_text("utf-8"), "tree", tree())
    if len(sys.argv) > 1:
        text = between(text, "claims", ledger(Path(sys.argv[1])))
        picture(Path(sys.argv[1]) / "rl_vs_sft")
    README.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
