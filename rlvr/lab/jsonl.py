"""JSON files that survive a kill: atomic whole files, line-by-line logs, numpy values as plain numbers.

Not a run folder's layout; that is ``rlvr.lab.store``. NaN and the infinities are written as ``null``,
because JSON has no word for them and a file that other readers refuse is worth nothing; ``null`` reads back
as ``None``.
"""

import json
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

__all__ = [
    "append_jsonl",
    "iter_jsonl",
    "last_jsonl",
    "plain",
    "read_json",
    "replacing",
    "write_json",
    "write_jsonl",
]


def plain(value: Any, place: str = "value") -> Any:
    """``value`` with numpy scalars and arrays as Python numbers and lists, and NaN or infinity as ``None``.

    Anything else that JSON has no word for (a tensor, a path, a set, a key that is no string) is a
    ``ValueError`` that names where it stands: a silent ``str(value)`` would turn 3 into "3" (fault B113).

    >>> plain({"score": np.int64(3), "ok": np.bool_(True), "v": np.float32("nan")})
    {'score': 3, 'ok': True, 'v': None}
    """
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, Mapping):
        return {_key(key, place): plain(item, f"{place}.{key}") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, f"{place}[{index}]") for index, item in enumerate(value)]
    raise ValueError(
        f"{place} is {value!r:.80} of type {type(value).__name__}; JSON takes str, int, float, bool, None, "
        "dict, list, tuple and numpy values (a tensor: give its .item() or .tolist())"
    )


def _key(key: Any, place: str) -> str:
    if not isinstance(key, str):
        raise ValueError(f"{place} has the key {key!r} of type {type(key).__name__}; JSON keys are strings")
    return str(key)


@contextmanager
def replacing(path: str | os.PathLike) -> Iterator[Path]:
    """Yields a temporary name beside ``path``; what is written there becomes ``path`` in one move when the
    block ends well.

    A reader sees the old file or the new one, never a part; a killed writer leaves the old file, and a
    ``.name.pid.tmp`` beside it that no reader looks at. An exception in the block removes the temporary
    file and leaves ``path`` alone.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder, "weights.bin")) as temporary:
    ...         temporary.write_bytes(b"abc")
    ...     os.listdir(folder)
    3
    ['weights.bin']
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        _sync(temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _sync(path: Path) -> None:
    # Without this a power cut can leave the new name with no bytes behind it.
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def write_json(path: str | os.PathLike, obj: Any) -> None:
    """Writes ``obj`` as one JSON file, atomically; conversions and refusals are those of ``plain``.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_json(Path(folder, "new", "config.json"), {"steps": np.int64(3)})
    ...     read_json(Path(folder, "new", "config.json"))
    {'steps': 3}
    """
    text = json.dumps(plain(obj, Path(path).name), ensure_ascii=False, allow_nan=False, indent=1)
    with replacing(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def read_json(path: str | os.PathLike) -> Any:
    """The value in a JSON file; a byte order mark is skipped. A missing or broken file is an error that
    names it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Path(folder, "config.json").write_text("{'a': 1}")
    ...     read_json(Path(folder, "config.json"))
    Traceback (most recent call last):
    ValueError: ... is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)
    """
    path = Path(path)
    try:
        return json.loads(path.read_bytes())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{_short(path)} is not JSON: {error}") from error


def write_jsonl(path: str | os.PathLike, records: Iterable[Mapping[str, Any]]) -> None:
    """Writes one JSON object a line, atomically, reading ``records`` as a stream.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_jsonl(Path(folder, "metrics.jsonl"), [{"step": 0}, {"step": 1}])
    ...     list(iter_jsonl(Path(folder, "metrics.jsonl")))
    [{'step': 0}, {'step': 1}]
    """
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        for record in records:
            file.write(_line(record, Path(path).name))


def append_jsonl(path: str | os.PathLike, record: Mapping[str, Any]) -> None:
    """Adds one line at the end of a log, in one write. A log that ends in half a line is refused, not glued
    to.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     append_jsonl(Path(folder, "metrics.jsonl"), {"step": 0, "kl": float("inf")})
    ...     print(Path(folder, "metrics.jsonl").read_text())
    {"step": 0, "kl": null}
    <BLANKLINE>
    """
    path = Path(path)
    line = _line(record, path.name).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                raise ValueError(
                    f"{_short(path)} ends in half a line, left by a killed run; truncate it before going on"
                )
        file.write(line)


def _line(record: Mapping[str, Any], name: str) -> str:
    if not isinstance(record, Mapping):
        raise ValueError(f"{name} takes one dict a line, not {record!r:.80}")
    return json.dumps(plain(record, name), ensure_ascii=False, allow_nan=False) + "\n"


def iter_jsonl(path: str | os.PathLike, on_broken: Callable[[str], Any] = warnings.warn) -> Iterator[dict[str, Any]]:
    """The objects of a JSON-lines file, one at a time: memory holds a line, never the file (fault B118).

    Blank lines and a byte order mark are skipped (fault B115). A last line that was cut off, as a killed
    writer leaves it, is left out and ``on_broken`` is told its number; a broken line before the last is a
    ``ValueError``, because then the file is damaged and no rest of it can be trusted.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log, notes = Path(folder, "metrics.jsonl"), []
    ...     _ = log.write_text('{"r": 1}\\n{"r": 0}\\n{"r":')
    ...     list(iter_jsonl(log, on_broken=notes.append))
    ...     notes[0].partition("metrics.jsonl: ")[2]
    [{'r': 1}, {'r': 0}]
    'line 3 is cut off and was left out'
    """
    path = Path(path)
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                # From bytes, not text: json then skips a byte order mark by itself.
                record = json.loads(line)
            except (json.JSONDecodeError, UnicodeDecodeError) as error:
                if any(rest.strip() for rest in file):
                    raise ValueError(f"{_short(path)}: line {number} is not JSON ({error})") from error
                on_broken(f"{_short(path)}: line {number} is cut off and was left out")
                return
            if not isinstance(record, dict):
                raise ValueError(f"{_short(path)}: line {number} is {record!r:.80}; every line is one JSON object")
            yield record


def last_jsonl(path: str | os.PathLike) -> dict[str, Any] | None:
    """The last complete line of a log, read from its end: cheap enough to ask several times a second while
    it grows.

    ``None`` when there is no complete line yet.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "metrics.jsonl").write_text('{"step": 0}\\n{"step": 1}\\n{"st')
    ...     last_jsonl(Path(folder, "metrics.jsonl"))
    {'step': 1}
    """
    with open(path, "rb") as file:
        tail, position = b"", file.seek(0, os.SEEK_END)
        # Two line ends: the second last one proves that the line before the last is whole.
        while position and tail.count(b"\n") < 2:
            size = min(position, 8192)
            position = file.seek(position - size)
            tail = file.read(size) + tail
            file.seek(position)
    complete = tail.split(b"\n")[:-1]
    return json.loads(complete[-1]) if complete else None


def _short(path: Path) -> str:
    return os.path.join(path.parent.name, path.name)
