"""Measurements back from wherever they are: this machine's store, another's, or an export of one."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import from_json

from gpuyard.errors import UserMistake, quoted
from gpuyard.files import read_bytes, too_many_values
from gpuyard.measure.kind import AnyRecord
from gpuyard.measure.record import Record
from gpuyard.measure.registry import RESULT_KINDS
from gpuyard.measure.store import ResultsStore

_SQLITE = b"SQLite format 3\0"
_MOST_LINES = 100_000
_LONGEST_LINE = 1_000_000  # a measurement takes some thousand characters


@dataclass(frozen=True)
class Results:
    """Records of all kinds, each once, whichever file it was in."""

    records: tuple[Record, ...] = ()

    def of(self, record: type[AnyRecord]) -> list[AnyRecord]:
        return [found for found in self.records if isinstance(found, record)]


def read_results(paths: Sequence[Path]) -> Results:
    """Stores and exports in JSON lines, in any order."""
    return Results(tuple({record.id: record for path in paths for record in _read(path)}.values()))


def _read(path: Path) -> list[Record]:
    try:
        if path.is_dir():
            raise UserMistake(f"{path} is a directory; name the store or the export in it")
        with path.open("rb") as file:
            stored = file.read(len(_SQLITE)) == _SQLITE
    except OSError as error:
        raise UserMistake(f"{path} can't be read: {error.strerror}") from error
    if stored:
        store = ResultsStore(path)
        return [found for kind in RESULT_KINDS.values() for found in store.records(kind.record)]
    try:
        text = read_bytes(path).decode()
    except UnicodeDecodeError:
        raise UserMistake(
            f"{path} is neither a results store nor an export of one; write one with: "
            "gpuyard results export --output FILE"
        ) from None
    return records_from_export(text, str(path))


def records_from_export(text: str, name: str) -> list[Record]:
    """What `gpuyard results export --format json` wrote, one measurement a line."""
    if text.startswith("id,"):
        raise UserMistake(
            f"{name} is CSV, which leaves out the workload's spec; export with: "
            "gpuyard results export --format json --output FILE"
        )
    found = []
    if (lines := text.count("\n")) > _MOST_LINES:
        raise UserMistake(f"{name}: it has {lines:,} lines, {_MOST_LINES:,} is the most")
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        if len(line) > _LONGEST_LINE:
            raise UserMistake(f"{name}:{number}: longer than {_LONGEST_LINE:,} characters")
        try:
            if (why := too_many_values(line)) is not None:
                raise ValueError(why)
            found.append(_record(line))
        except ValidationError as invalid:
            first = invalid.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise UserMistake(
                f"{name}:{number}: not a measurement ({f'{where}: ' if where else ''}{first['msg']})"
            ) from invalid
        except ValueError as invalid:
            raise UserMistake(f"{name}:{number}: not a measurement ({invalid})") from invalid
    return found


def _record(line: str) -> Record:
    said = from_json(line)
    kind = said.get("kind") if isinstance(said, dict) else None
    if not isinstance(kind, str) or kind not in RESULT_KINDS:
        raise ValueError(
            f"kind: expected one of {', '.join(RESULT_KINDS)}, got {quoted(str(kind))}"
        )
    read: Record = RESULT_KINDS[kind].record.model_validate(said)
    return read
