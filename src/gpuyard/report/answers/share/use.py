"""How leases are used: GPU-hours by user, group and project, and whether everybody keeps to theirs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from gpuyard.report import formats
from gpuyard.report.answer import Answer, Bullets, Column, Part, Sentence, Table, Text
from gpuyard.report.answers.share.leases import guard_sentence
from gpuyard.share.watch.violations import IDLE, Violation


def usage_answer(document: Mapping[str, Any]) -> Answer:
    """Three tables, and what all of it would have cost."""
    if not document["leases"]:
        return Answer([Sentence("Nobody has leased a GPU yet.")], document, verb="usage")
    parts: list[Part] = [
        _table("user", document["by_user"]),
        _table("group", document["by_group"]),
    ]
    if any(row["name"] for row in document["by_project"]):
        parts.append(_table("project", document["by_project"]))
    parts.append(Sentence(_total(document)))
    return Answer(parts, document, verb="usage")


def _table(kind: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    columns = (
        kind,
        "GPU-hours",
        Column("leases", 2),
        Column("utilisation", 1),
        Column("in the cloud", 3),
    )
    cells = [
        [
            row["name"] or "none",
            f"{row['gpu_hours']:.2f}",
            str(row["leases"]),
            _percent(row["utilisation"]),
            "N/A" if row["cloud_usd"] is None else formats.usd(row["cloud_usd"]),
        ]
        for row in rows
    ]
    return Table("", columns, cells)


def _total(document: Mapping[str, Any]) -> str:
    hours = f"Total: {document['gpu_hours']:.2f} GPU-hours"
    if document["cloud_usd"] is None:
        return f"{hours}; the catalog has no on-demand price for these GPUs."
    return (
        f"{hours}, {formats.usd(document['cloud_usd'])} at the cheapest on-demand price, "
        f"{formats.usd(document['cloud_usd_per_gpu_hour'])} per GPU and hour "
        f"({document['cloud_price']}, {document['cloud_price_date']})."
    )


def _percent(share: float | None) -> str:
    return "N/A" if share is None else formats.percent(share)


def audit_answer(
    found: Sequence[Violation],
    told: Sequence[Violation],
    ended: Sequence[Violation],
    *,
    readable: bool,
    guard: str,
) -> Answer:
    """Each violation, and what was done about it."""
    parts: list[Part] = []
    if found:
        parts.append(Bullets([Text(violation.sentence, "bad") for violation in found]))
    else:
        parts.append(Sentence("Everybody keeps to their leases.", "good"))
    if not readable:
        parts.append(
            Sentence(
                "What runs on the GPUs can't be read here, so only leases were checked.", "caution"
            )
        )
    if told:
        parts.append(Sentence(f"{len(told)} were warned on their terminals."))
    parts.extend(
        Sentence(
            f"Lease {one.lease} of {one.user} was released."
            if one.kind == IDLE
            else f"Process {one.pid} of {one.user} was ended."
        )
        for one in ended
    )
    parts.append(Sentence(guard_sentence(guard)))
    document = {
        "violations": [asdict(violation) for violation in found],
        "warned": [violation.pid for violation in told],
        "stopped": [violation.pid for violation in ended],
        "gpus_readable": readable,
        "guard": guard,
    }
    return Answer(parts, document, verb="audit")
