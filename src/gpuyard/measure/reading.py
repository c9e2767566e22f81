"""Measurements back from wherever they are: this machine's store, another's, or an export of one."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from gpuyard.errors import UserMistake
from gpuyard.measure.links.records import LinkBench
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.training.measurement import Measurement

_SQLITE = b"SQLite format 3\0"
_LINE: TypeAdapter[Measurement | LinkBench] = TypeAdapter(
    Annotated[Measurement | LinkBench, Field(discriminator="kind")]
)


@dataclass(frozen=True)
class Results:
    """Training runs and benches of links, each once, whichever file it was in."""

    measurements: tuple[Measurement, ...]
    benches: tuple[LinkBench, ...]


def read_results(paths: Sequence[Path]) -> Results:
    """Stores and exports in JSON lines, in any order."""
    found: dict[str, Measurement | LinkBench] = {}
    for path in paths:
        for record in _read(path):
            found[record.id] = record
    return Results(
        tuple(r for r in found.values() if isinstance(r, Measurement)),
        tuple(r for r in found.values() if isinstance(r, LinkBench)),
    )


def _read(path: Path) -> list[Measurement | LinkBench]:
    if path.is_dir():
        raise UserMistake(f"{path} is a directory; name the store or the export in it")
    try:
        with path.open("rb") as file:
            stored = file.read(len(_SQLITE)) == _SQLITE
    except OSError as error:
        raise UserMistake(f"{path} can't be read: {error.strerror}") from error
    if stored:
        store = ResultsStore(path)
        return [*store.list(), *store.list_links()]
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UserMistake(
            f"{path} is neither a results store nor an export of one; write one with: "
            "gpuyard results export --output FILE"
        ) from None
    return _json_lines(path, text)


def _json_lines(path: Path, text: str) -> list[Measurement | LinkBench]:
    if text.startswith("id,"):
        raise UserMistake(
            f"{path} is CSV, which leaves out the workload's spec; export with: "
            "gpuyard results export --format json --output FILE"
        )
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            found.append(_LINE.validate_json(line))
        except ValidationError as invalid:
            first = invalid.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise UserMistake(
                f"{path}:{number}: not a measurement ({f'{where}: ' if where else ''}{first['msg']})"
            ) from invalid
    return found
