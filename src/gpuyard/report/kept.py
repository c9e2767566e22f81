"""Reports that are kept in gpuyard's home, so that a page written once can be opened again; and answers as plain JSON."""

import contextlib
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.files import create_parent, home, read_text, write_text
from gpuyard.report import answer as parts
from gpuyard.report.answer import Answer, replace_nonfinite

_CLASS = "="
"""The key of an object that names its class."""
_CLASSES: dict[str, Any] = {
    cls.__name__: cls for cls in vars(parts).values() if isinstance(cls, type) and is_dataclass(cls)
}
_ID = re.compile(r"[0-9a-f]{12}")
_MAX_KEPT = 100
_MAX_BYTES = 50_000_000
_MAX_HEAD = 40_000
_MAX_COMMAND = 4000  # characters


def encode_answer(answer: Answer) -> Any:
    """Return the answer as plain JSON. Drawings keep their SVG; what only a terminal shows is left out."""
    return replace_nonfinite(_encode(answer))


def _encode(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        named = {field.name: getattr(value, field.name) for field in fields(value)}
        shown = {key: _encode(item) for key, item in named.items() if not callable(item)}
        return {_CLASS: type(value).__name__, **shown}
    if isinstance(value, Mapping):
        return {str(key): _encode(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_encode(item) for item in value]
    return value


def decode_answer(value: Any) -> Answer:
    """Return the answer of `encode_answer`; raise GpuyardError if it is none."""
    try:
        answer = _decode(value)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise GpuyardError(f"the report cannot be read: {error}") from error
    if not isinstance(answer, Answer):
        raise GpuyardError("the report cannot be read: it has no answer")
    return answer


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    decoded = {key: _decode(item) for key, item in value.items() if key != _CLASS}
    return _CLASSES[value[_CLASS]](**decoded) if _CLASS in value else decoded


@dataclass(frozen=True)
class KeptReport:
    """The heading of a kept report."""

    id: str
    title: str
    verb: str
    meta: str
    written: str
    """When, as an ISO timestamp."""
    command: Sequence[str] = ()
    """The words after `gpuyard` of the command that wrote it; none if they were too long to keep."""


def keep_report(answer: Answer, command: Sequence[str] = ()) -> None:
    """Keep a report of which a page was written, and delete the oldest ones; a full disk is no error."""
    text = json.dumps(encode_answer(answer), ensure_ascii=False)
    id_ = hashlib.sha256(text.encode()).hexdigest()[:12]
    written = datetime.now().astimezone().isoformat(timespec="seconds")
    head: dict[str, Any] = {
        "title": answer.title,
        "verb": answer.verb,
        "meta": answer.meta,
        "written": written,
    }
    if sum(map(len, command)) < _MAX_COMMAND:
        head["command"] = list(command)
    with contextlib.suppress(GpuyardError, OSError):
        path = create_parent(_directory() / f"{id_}.json")
        write_text(path, f"{json.dumps(head)}\n{text}\n", mode=0o600)
        kept = sorted(_directory().glob("*.json"), key=lambda file: file.stat().st_mtime)
        for old in kept[:-_MAX_KEPT]:
            old.unlink(missing_ok=True)


def list_reports() -> list[KeptReport]:
    """Return the headings of all kept reports, the newest first; files that are none are skipped."""
    return sorted(_iter_heads(), key=lambda report: report.written, reverse=True)


def _iter_heads() -> Iterator[KeptReport]:
    for path in _directory().glob("*.json"):
        if not _ID.fullmatch(path.stem):
            continue
        with contextlib.suppress(OSError, ValueError, TypeError):
            with path.open(encoding="utf-8") as file:
                head = json.loads(file.readline(_MAX_HEAD))
            yield KeptReport(id=path.stem, **head)


def read_report(id_: str) -> Answer:
    """Read a kept report."""
    path = _directory() / f"{id_}.json"
    if not _ID.fullmatch(id_) or not path.is_file():
        raise UserMistake(f"report {id_!r} not found; the page Results lists those that are kept")
    text = read_text(path, max_bytes=_MAX_BYTES)
    try:
        return decode_answer(json.loads(text.partition("\n")[2]))
    except ValueError as error:
        raise GpuyardError(f"report {id_} cannot be read: {error}") from error


def _directory() -> Path:
    return home() / "reports"
