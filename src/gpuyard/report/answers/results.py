"""What was measured, or would be: the tables and sentences of a bench as an answer."""

from collections.abc import Sequence
from typing import Any

from gpuyard.measure.bench import Plan
from gpuyard.measure.kind import AnyRecord, Listing, ResultKind, Shown
from gpuyard.measure.record import Record
from gpuyard.measure.registry import RESULT_KINDS
from gpuyard.report.answer import Answer, Column, Facts, Items, Part, Sentence, Table, Text, Tone

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


def plan_answer(plan: Plan) -> Answer:
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
        listed = Listing(listed.title, [*listed.columns, _DOUBT], rows)
    document = [record.as_json() for record in records]
    return shown_answer([listed] if records else [], document)


def shown_answer(shown: Shown, document: Any) -> Answer:
    """A room below this one says in plain values what is shown."""
    return Answer([_part(part) for part in shown], document)


def _part(shown: Listing | str) -> Part:
    if isinstance(shown, str):
        return Items([shown[2:]]) if shown.startswith("- ") else Sentence(shown)
    if not any(shown.columns):
        return Facts([(name, value) for name, value in shown.rows], shown.title)
    columns = [Column(*c) if isinstance(c, tuple) else c for c in shown.columns]
    tones = [_TONES.get(c[0] if isinstance(c, tuple) else c, {}) for c in shown.columns]
    rows = [
        [Text(cell, tone.get(cell, tone.get("", "plain"))) if tone and cell else cell
         for cell, tone in zip(row, tones, strict=True)]
        for row in shown.rows
    ]  # fmt: skip
    return Table(shown.title, columns, rows)
