"""What was measured, or would be: the tables and sentences of a bench as an answer."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpuyard.measure.bench import BenchPlan
from gpuyard.measure.kind import AnyRecord, ResultKind, Shown
from gpuyard.measure.record import Record
from gpuyard.measure.registry import RESULT_KINDS
from gpuyard.report.answer import Answer, Bullets, DefinitionList, Part, Sentence
from gpuyard.table import Column, Table, Text, Tone, Words

_DOUBT = "doubt"
_TONES: dict[str, dict[str, Tone]] = {  # of a column's words; the empty one stands for all others
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
    """What a bench would do."""
    return shown_answer([plan.listing()], plan.describe())


def record_answer(record: Record) -> Answer:
    """One record with everything that it says."""
    shown = RESULT_KINDS[record.kind].show(record)
    doubt = [] if record.doubt is None else [Sentence(f"Doubtful: {record.doubt}.", "caution")]
    return Answer([*map(_part, shown), *doubt], record.as_json())


def records_answer(kind: ResultKind[AnyRecord], records: Sequence[AnyRecord]) -> Answer:
    """All records of a kind, one a row, with what speaks against them."""
    listed = kind.listing(records)
    if any(record.doubt for record in records):
        rows = [[*row, r.doubt or ""] for row, r in zip(listed.rows, records, strict=True)]
        listed = Table(listed.title, [*listed.columns, _DOUBT], rows)
    document = [record.as_json() for record in records]
    return shown_answer([listed] if records else [], document)


def shown_answer(shown: Shown, document: Any) -> Answer:
    """A room below this one says in plain values what is shown."""
    return Answer([_part(part) for part in shown], document)


def _part(shown: Table | str) -> Part:
    if isinstance(shown, str):
        return Bullets([shown[2:]]) if shown.startswith("- ") else Sentence(shown)
    if not any(shown.columns):
        return DefinitionList([(str(name), value) for name, value in shown.rows], shown.title)
    tones = [_TONES.get(c.name if isinstance(c, Column) else c, {}) for c in shown.columns]
    rows = [
        [_toned(cell, tone) for cell, tone in zip(row, tones, strict=True)] for row in shown.rows
    ]
    return replace(shown, rows=rows)


def _toned(cell: Words, tones: Mapping[str, Tone]) -> Words:
    """What a cell means by what it says, where its column has such words."""
    if not (tones and cell and isinstance(cell, str)):
        return cell
    return Text(cell, tones.get(cell, tones.get("", "plain")))
