"""Answers of `usage` and `audit`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from gpuyard.report import formats
from gpuyard.report.answer import (
    ALL_BATCHES,
    Answer,
    Bullets,
    Chart,
    Charts,
    Column,
    Part,
    RendererOnly,
    Sentence,
    Table,
    Text,
)
from gpuyard.report.answers.share.leases import guard_sentence
from gpuyard.report.figures.usage import build_use_over_time_chart
from gpuyard.share.misuse import Violation
from gpuyard.share.violations import IDLE


def usage_answer(document: Mapping[str, Any]) -> Answer:
    """Build tables by user, group, and project, and a sentence with the total cost."""
    if not document["leases"]:
        return Answer(
            [Sentence("No GPU was leased in this time.")], document, verb="usage", rows="leases"
        )
    chart = Chart("chart-use-over-time", "", {ALL_BATCHES: build_use_over_time_chart(document)})
    parts: list[Part] = [
        RendererOnly("page", [Charts([chart])]),
        _build_table("user", document["by_user"]),
        _build_table("group", document["by_group"]),
    ]
    if any(row["name"] for row in document["by_project"]):
        parts.append(_build_table("project", document["by_project"]))
    if sum(row["gpu_hours"] for row in document["by_group"]) > document["gpu_hours"]:
        parts.append(Sentence("A user's GPU-hours count in each of their groups."))
    parts.append(Sentence(_describe_total(document)))
    return Answer(parts, document, verb="usage", rows="leases")


def _build_table(kind: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    columns = (
        kind,
        "GPU-hours",
        Column("leases", 2),
        Column("utilization", 1),
        Column("cloud cost", 3),
        Column("mean wait", 4),
    )
    cells = [
        [
            row["name"] or "none",
            f"{row['gpu_hours']:.2f}",
            str(row["leases"]),
            "N/A" if row["utilization"] is None else formats.percent(row["utilization"]),
            "N/A" if row["cloud_usd"] is None else formats.usd(row["cloud_usd"]),
            formats.elapsed(row["mean_waiting_seconds"]),
        ]
        for row in rows
    ]
    return Table("", columns, cells)


def _describe_total(document: Mapping[str, Any]) -> str:
    hours = f"Total: {document['gpu_hours']:.2f} GPU-hours"
    if document["cloud_usd"] is None:
        return f"{hours}; the catalog has no on-demand price for these GPUs."
    return (
        f"{hours}, {formats.usd(document['cloud_usd'])} at the cheapest on-demand price, "
        f"{formats.usd(document['cloud_usd_per_gpu_hour'])} per GPU-hour "
        f"({document['cloud_price_title']}, {document['cloud_price_date']})."
    )


def audit_answer(
    violations: Sequence[Violation],
    warned: Sequence[Violation],
    stopped: Sequence[Violation],
    *,
    readable: bool,
    guard: str,
) -> Answer:
    """List the violations, and what gpuyard did about them."""
    parts: list[Part] = []
    if violations:
        parts.append(Bullets([Text(violation.sentence, "bad") for violation in violations]))
    else:
        parts.append(Sentence("Everyone keeps to their leases.", "good"))
    if not readable:
        parts.append(
            Sentence(
                "The processes on the GPUs cannot be read here, so only leases were checked.",
                "caution",
            )
        )
    if warned:
        parts.append(Sentence(f"Warned on their terminals: {len(warned)}."))
    parts.extend(
        Sentence(
            f"Released lease {violation.lease} of {violation.user}."
            if violation.kind == IDLE
            else f"Stopped process {violation.pid} of {violation.user}."
        )
        for violation in stopped
    )
    parts.append(Sentence(guard_sentence(guard)))
    document = {
        "violations": [asdict(violation) for violation in violations],
        "warned": [violation.pid for violation in warned],
        "stopped": [violation.pid for violation in stopped],
        "gpus_readable": readable,
        "guard": guard,
    }
    return Answer(parts, document, verb="audit", rows="violations")
