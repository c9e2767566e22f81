"""The answers of benches and `gpuyard results`: measured records, or plans of a dry run."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpuyard.measure.bench import BenchPlan
from gpuyard.measure.kind import AnyRecord, Content, ResultKind
from gpuyard.measure.record import Record
from gpuyard.measure.registry import RESULT_KINDS
from gpuyard.report.answer import Answer, Bullets, DefinitionList, Part, Sentence
from gpuyard.table import Column, StyledText, Table, Text, Tone

_DOUBT = "doubt"
# the tones of cells by column and text; the empty text stands for all others
_TONES: dict[str, dict[str, Tone]] = {
    _DOUBT: {"": "caution"},
    "verdict": {
        "slow": "bad",
        "below": "bad",
        "wrong": "bad",
        "starves": "bad",
        "refused": "caution",
    },
    "reached": {"no": "caution"},
}


def plan_answer(plan: BenchPlan) -> Answer:
    """Show the runs that a benchmark would measure."""
    return content_answer([plan.build_table()], plan.describe())


def record_answer(record: Record) -> Answer:
    """Show one record with all its details."""
    details = RESULT_KINDS[record.kind].build_details(record)
    doubt = [] if record.doubt is None else [Sentence(f"Doubtful: {record.doubt}.", "caution")]
    return Answer([*map(_build_part, details), *doubt], record.as_json())


def records_answer(kind: ResultKind[AnyRecord], records: Sequence[AnyRecord]) -> Answer:
    """List all records of a kind, one per row, with the reasons to doubt them."""
    table = kind.build_table(records)
    if any(record.doubt for record in records):
        rows = [[*row, r.doubt or ""] for row, r in zip(table.rows, records, strict=True)]
        table = Table(table.title, [*table.columns, _DOUBT], rows)
    document = [record.as_json() for record in records]
    return content_answer([table] if records else [], document)


def content_answer(content: Content, document: Any) -> Answer:
    """Turn the tables and sentences of a measurement into an answer."""
    return Answer([_build_part(part) for part in content], document)


def _build_part(part: Table | str) -> Part:
    if isinstance(part, str):
        return Bullets([part[2:]]) if part.startswith("- ") else Sentence(part)
    if not any(part.columns):
        return DefinitionList([(str(name), value) for name, value in part.rows], part.title)
    tones = [_TONES.get(c.name if isinstance(c, Column) else c, {}) for c in part.columns]
    rows = [
        [_add_tone(cell, tone) for cell, tone in zip(row, tones, strict=True)] for row in part.rows
    ]
    return replace(part, rows=rows)


def _add_tone(cell: StyledText, tones: Mapping[str, Tone]) -> StyledText:
    """Give a cell the tone of its text, if its column has tones."""
    if not (tones and cell and isinstance(cell, str)):
        return cell
    return Text(cell, tones.get(cell, tones.get("", "plain")))
