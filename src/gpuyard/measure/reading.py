"""Reads measurements from any results store or from an export of one."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import from_json

from gpuyard.errors import UserMistake, quote
from gpuyard.files import read_bytes, too_many_values
from gpuyard.measure.kind import AnyRecord
from gpuyard.measure.record import Record
from gpuyard.measure.registry import RESULT_KINDS
from gpuyard.measure.store import ResultsStore

_SQLITE = b"SQLite format 3\0"
_MAX_LINES = 100_000
_MAX_LINE_CHARACTERS = 1_000_000  # a measurement has a few thousand


@dataclass(frozen=True)
class Results:
    """Records of all kinds, without duplicates."""

    records: tuple[Record, ...] = ()

    def select(self, record_type: type[AnyRecord]) -> list[AnyRecord]:
        return [record for record in self.records if isinstance(record, record_type)]


def read_results(paths: Sequence[Path]) -> Results:
    """Read stores and JSON-lines exports, in any order."""
    return Results(tuple({record.id: record for path in paths for record in _read(path)}.values()))


def _read(path: Path) -> list[Record]:
    try:
        if path.is_dir():
            raise UserMistake(f"{path} is a directory; name the store or the export in it")
        with path.open("rb") as file:
            is_store = file.read(len(_SQLITE)) == _SQLITE
    except OSError as error:
        raise UserMistake(f"{path} cannot be read: {error.strerror}") from error
    if is_store:
        store = ResultsStore(path)
        return [record for kind in RESULT_KINDS.values() for record in store.records(kind.record)]
    try:
        text = read_bytes(path).decode()
    except UnicodeDecodeError:
        raise UserMistake(
            f"{path} is neither a results store nor an export of one; write one with: "
            "gpuyard results export --output FILE"
        ) from None
    return parse_export(text, str(path))


def parse_export(text: str, name: str) -> list[Record]:
    """Parse the output of `gpuyard results export --as json`, one measurement per line."""
    if text.startswith("id,"):
        raise UserMistake(
            f"{name} is CSV, which leaves out the workload's spec; export with: "
            "gpuyard results export --as json --output FILE"
        )
    records = []
    if (lines := text.count("\n")) > _MAX_LINES:
        raise UserMistake(f"{name} has {lines:,} lines; the maximum is {_MAX_LINES:,}")
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        if len(line) > _MAX_LINE_CHARACTERS:
            raise UserMistake(f"{name}:{number}: longer than {_MAX_LINE_CHARACTERS:,} characters")
        try:
            if (problem := too_many_values(line)) is not None:
                raise ValueError(problem)
            records.append(_parse_record(line))
        except ValidationError as invalid:
            first = invalid.errors()[0]
            key = ".".join(str(part) for part in first["loc"])
            raise UserMistake(
                f"{name}:{number}: not a measurement ({f'{key}: ' if key else ''}{first['msg']})"
            ) from invalid
        except ValueError as invalid:
            raise UserMistake(f"{name}:{number}: not a measurement ({invalid})") from invalid
    return records


def _parse_record(line: str) -> Record:
    document = from_json(line)
    kind = document.get("kind") if isinstance(document, dict) else None
    if not isinstance(kind, str) or kind not in RESULT_KINDS:
        raise ValueError(f"kind: expected one of {', '.join(RESULT_KINDS)}, got {quote(str(kind))}")
    record: Record = RESULT_KINDS[kind].record.model_validate(document)
    return record
