"""The rules of the house, read from the source: floors, lengths, documentation, and what must not be
imported.

Every rule is a function from source text to complaints, and every rule is shown a source that breaks it: a
rule that never fires would pass just as green.
"""

import ast
import io
import json
import re
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FLOORS = {
    "types": 0, "rng": 0,
    "algo": 1, "stats": 1, "tasks": 1, "policy": 1,
    "rewards": 2,
    "lab": 3,
    "experiments": 4, "report": 4,
    "interop": 5,
    "cli": 6,
}  # fmt: skip
LONGEST_FILE, LONGEST_TEST_FILE, LONGEST_BODY = 300, 600, 40

# Rooms whose names people import and call by themselves: there every exported name shows itself at work.
SHOWN = ("types", "rng", "algo", "stats", "tasks", "policy", "rewards")
# Short on purpose. An entry is a decision, with its reason beside it.
WITHOUT_EXAMPLE = {
    "rlvr/policy/sampler.py:sample_unique",  # LabPolicy's example goes through it
    "rlvr/policy/score.py:score_unique",  # the same
    "rlvr/policy/score.py:unique_rows",  # the same
}

UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK|NotImplemented" + r"Error)\b")
MACHINE_PATH = re.compile(r"(?<![\w.])/(tmp|home|root|work|opt|Users)/")


def sources(*folders):
    """The Python files of these folders by their name from the root, in order."""
    found = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in sorted(found)}


CODE = sources("rlvr", "tests", "examples", "benchmarks")
LIBRARY = sources("rlvr")


def tracked_files():
    """What git tracks or would track; without git, the source folders."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        names = done.stdout.splitlines() if done.returncode == 0 else list(CODE)
    except OSError:
        names = list(CODE)
    for name in names:
        try:
            yield name, (ROOT / name).read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
            continue


def nothing(complaints):
    """Fails with every complaint on a line of its own."""
    found = list(complaints)
    assert not found, "\n" + "\n".join(found)


# ── Floors ──────────────────────────────────────────────────────────────────────────────────


def imports(name, source):
    """(line, dotted module) of everything of rlvr that a file imports, inside functions too."""
    package = name.removesuffix(".py").split("/")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            # From the root itself a name may be a package: `from rlvr import lab`.
            yield from ((node.lineno, f"{module}.{alias.name}" if module == "rlvr" else module) for alias in node.names)


def floor_complaints(name, source):
    home = Path(name).parts[1].removesuffix(".py")
    if home in ("__init__", "__main__"):
        return
    if home not in FLOORS:
        yield f"{name}: {home} has no floor; give it one in FLOORS"
        return
    for line, module in imports(name, source):
        parts = module.split(".")
        if parts[0] != "rlvr" or len(parts) == 1 or parts[1] in (home, "__version__"):
            continue
        if parts[1] not in FLOORS or FLOORS[parts[1]] >= FLOORS[home]:
            floors = f"floor {FLOORS.get(parts[1], 'unknown')}, not below {FLOORS[home]}"
            yield f"{name}:{line}: {home} imports {module} ({floors})"


def test_a_module_imports_only_from_floors_below():
    nothing(complaint for item in LIBRARY.items() for complaint in floor_complaints(*item))


@pytest.mark.parametrize(
    ("name", "source", "complaints"),
    [
        ("rlvr/algo/a.py", "import rlvr.lab.store", 1),
        ("rlvr/algo/a.py", "from rlvr.stats import passk", 1),
        ("rlvr/algo/a.py", "def f():\n    from rlvr import report", 1),
        ("rlvr/algo/a.py", "from ..lab import store\nfrom .. import policy", 2),
        ("rlvr/lab/a.py", "from rlvr.rewards import rules\nfrom rlvr.experiments import base", 1),
        (
            "rlvr/algo/a.py",
            "from rlvr.algo.b import c\nfrom . import b\nfrom rlvr.types import Problem\nimport torch",
            0,
        ),
        ("rlvr/lab/a.py", "from rlvr import __version__, algo, stats\nimport rlvr", 0),
        ("rlvr/misc.py", "", 1),
    ],
)
def test_the_floor_rule_fires(name, source, complaints):
    assert len(list(floor_complaints(name, source))) == complaints


# ── Lengths ─────────────────────────────────────────────────────────────────────────────────


def code_lines(source):
    """The numbers of the lines that hold code: no blanks, no comments, no docstrings."""
    quiet = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in quiet:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and docstring(node):
            lines.difference_update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return lines


def docstring(node):
    return ast.get_docstring(node, clean=False)


def length_complaints(name, source):
    lines = code_lines(source)
    if len(lines) > (LONGEST_TEST_FILE if name.startswith("tests/") else LONGEST_FILE):
        yield f"{name}: {len(lines)} code lines"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            body = lines & set(range(node.body[0].lineno, node.end_lineno + 1))
            if len(body) > LONGEST_BODY:
                yield f"{name}:{node.lineno}: {node.name} has a body of {len(body)} code lines"


def test_files_and_bodies_are_short():
    nothing(complaint for item in CODE.items() for complaint in length_complaints(*item))


def test_the_length_rule_fires_and_counts_code_only():
    padding = '    """Says.\n\n    more\n    """\n    # a reason\n\n'
    assert list(length_complaints("a.py", "def f():\n" + padding + "    x = 1\n" * 40)) == []
    assert len(list(length_complaints("a.py", "def f():\n" + padding + "    x = 1\n" * 41))) == 1
    assert (
        len(list(length_complaints("a.py", "def f():\n    x = (\n" + "        1 +\n" * 39 + "        1\n    )\n"))) == 1
    )
    assert list(length_complaints("a.py", '"""Says."""\n' + "# a reason\n" * 9 + "x = 1\n" * 300)) == []
    assert len(list(length_complaints("a.py", "x = 1\n" * 301))) == 1


# ── Documentation ───────────────────────────────────────────────────────────────────────────


def public_definitions(tree):
    return [node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name[0] != "_"]


def exported(tree):
    """The names in ``__all__``, ``None`` when the module has none."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(getattr(target, "id", "") == "__all__" for target in node.targets):
            return {element.value for element in getattr(node.value, "elts", []) if isinstance(element, ast.Constant)}
    return None


def is_a_word(node):
    """Exceptions, records and protocols: they are shown where something raises, returns or satisfies them."""
    kinds = ("Error", "Exception", "Warning", "NamedTuple", "Protocol")
    return isinstance(node, ast.ClassDef) and any(getattr(base, "id", "").endswith(kinds) for base in node.bases)


def documentation_complaints(name, source):
    tree = ast.parse(source)
    names, shown = exported(tree), Path(name).parts[1].removesuffix(".py") in SHOWN
    if names is None and public_definitions(tree):
        yield f"{name}: public definitions but no __all__"
    for node in public_definitions(tree):
        if node.name not in (names or ()):
            continue
        text = docstring(node) or ""
        if not text:
            yield f"{name}:{node.lineno}: {node.name} has no docstring"
        elif ">>>" not in text and shown and not is_a_word(node) and f"{name}:{node.name}" not in WITHOUT_EXAMPLE:
            yield f"{name}:{node.lineno}: {node.name} has no >>> example in its docstring"


def test_every_public_name_is_documented_with_an_example():
    nothing(complaint for item in LIBRARY.items() for complaint in documentation_complaints(*item))


@pytest.mark.parametrize(
    ("source", "complaints"),
    [
        ("def f():\n    '''Says.'''", ["no __all__"]),
        ("__all__ = ['f']\ndef f(): ...", ["no docstring"]),
        ("__all__ = ['f']\ndef f():\n    '''Says.'''", ["no >>> example"]),
        ("__all__ = ['F']\nclass F:\n    '''Says.'''", ["no >>> example"]),
        ("__all__ = ['F']\nclass F(ValueError):\n    '''Says.'''", []),
        ("__all__ = ['f']\ndef f():\n    '''Says.\n\n    >>> f()\n    '''\ndef g(): ...\ndef _h(): ...", []),
        ("__all__ = ['F']\nclass F(NamedTuple):\n    '''Says.'''", []),
        ("def _h(): ...", []),
    ],
)
def test_the_documentation_rule_fires(source, complaints):
    found = list(documentation_complaints("rlvr/algo/a.py", source))
    assert len(found) == len(complaints)
    assert all(expected in complaint for expected, complaint in zip(complaints, found, strict=True))


def module_complaints(name, source):
    tree = ast.parse(source)
    if not docstring(tree):
        yield f"{name}: no module docstring"
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            yield f"{name}:{node.lineno}: imports from __future__, which hides annotations from their checker"


def test_every_module_says_what_it_is_for_and_keeps_its_annotations():
    nothing(complaint for item in CODE.items() for complaint in module_complaints(*item))


def test_the_module_rule_fires():
    assert len(list(module_complaints("a.py", "from __future__ import annotations"))) == 2
    assert list(module_complaints("a.py", "'''Says.'''")) == []


def test_every_folder_of_the_library_is_a_package():
    folders = {Path(name).parent for name in LIBRARY}
    assert [folder.as_posix() for folder in folders if f"{folder.as_posix()}/__init__.py" not in LIBRARY] == []


# ── Words ───────────────────────────────────────────────────────────────────────────────────


def word_complaints(name, text):
    for number, line in enumerate(text.splitlines(), start=1):
        if found := UNFINISHED.search(line):
            yield f"{name}:{number}: {found.group()}"
        if found := MACHINE_PATH.search(line):
            yield f"{name}:{number}: a path of one machine, {found.group()}"


def test_nothing_is_left_unfinished_and_no_path_of_one_machine_is_named():
    nothing(complaint for item in tracked_files() for complaint in word_complaints(*item))


def test_the_word_rule_fires():
    text = (
        "# TO" + "DO later\nraise NotImplemented" + "Error\nopen('/ho" + "me/me/a')\nsee ./tmp/a and https://a.b/work/c"
    )
    assert len(list(word_complaints("a.py", text))) == 3


# ── Imports that cost ───────────────────────────────────────────────────────────────────────

IMPORT = """
import importlib, json, pkgutil, sys, time
started = time.perf_counter()
import rlvr
took, names, loaded = time.perf_counter() - started, sys.argv[1:], []
for name in names:
    module = importlib.import_module(name)
    loaded.append(name)
    for found in pkgutil.walk_packages(getattr(module, "__path__", []), name + "."):
        importlib.import_module(found.name)
        loaded.append(found.name)
print(json.dumps({"took": took, "torch": "torch" in sys.modules, "loaded": loaded}))
"""


def import_in_a_fresh_process(*names):
    done = subprocess.run([sys.executable, "-c", IMPORT, *names], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_importing_the_library_is_quick_and_leaves_torch_alone():
    tries = [import_in_a_fresh_process() for _ in range(2)]
    assert not any(one["torch"] for one in tries)
    # The quicker of two: the machine may be busy with other things.
    assert min(one["took"] for one in tries) < 1.5


def test_reports_statistics_and_run_folders_never_import_torch():
    packages = [f"rlvr.{name}" for name in ("stats", "report") if (ROOT / "rlvr" / name / "__init__.py").is_file()]
    modules = [f"rlvr.lab.{name}" for name in ("store", "jsonl", "environment", "lock", "progress", "track")]
    result = import_in_a_fresh_process(*packages, *modules)
    assert set(modules) <= set(result["loaded"])
    assert not result["torch"], f"one of {result['loaded']} imports torch"


def test_the_torch_rule_fires():
    assert import_in_a_fresh_process("rlvr.types")["torch"]
