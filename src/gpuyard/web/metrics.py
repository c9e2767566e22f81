"""`/metrics` for Prometheus: leases, queue, utilization, violations, and cost per hour of every source."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from gpuyard.printable import make_printable
from gpuyard.web.views.now import render_now, summarize

router = APIRouter()
_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_HELP = {
    "gpuyard_gpus": "GPUs by state: free, leased, idle, drained, or problem.",
    "gpuyard_gpu_utilization_ratio": "Utilization of a GPU, from 0 to 1.",
    "gpuyard_gpu_memory_used_bytes": "Memory of a GPU in use.",
    "gpuyard_gpu_temperature_celsius": "Temperature of a GPU.",
    "gpuyard_gpu_power_watts": "Power of a GPU.",
    "gpuyard_leases": "Leases by user.",
    "gpuyard_leased_gpus": "Leased GPUs by user.",
    "gpuyard_idle_gpus": "Leased GPUs that do not compute, by user.",
    "gpuyard_queue_requests": "Requests that wait for GPUs.",
    "gpuyard_queue_longest_wait_seconds": "Time that the oldest request has waited.",
    "gpuyard_jobs_waiting": "Jobs that wait for GPUs.",
    "gpuyard_violations": "Violations of leases by kind.",
    "gpuyard_cloud_cost_usd_per_hour": "Cost of the leased GPUs at the cheapest on-demand price.",
    "gpuyard_sample_age_seconds": "Age of a machine's data.",
    "gpuyard_source_up": "1 if the last reading of the machine worked, otherwise 0.",
}
_READINGS = {
    "gpuyard_gpu_utilization_ratio": "utilization",
    "gpuyard_gpu_memory_used_bytes": "memory_used_bytes",
    "gpuyard_gpu_temperature_celsius": "temperature_c",
    "gpuyard_gpu_power_watts": "power_watts",
}
Value = tuple[str, Mapping[str, str], float]


def list_values(document: Mapping[str, Any], identity: Any) -> Iterator[Value]:
    """Yield the name, labels, and value of every metric."""
    for source in document["sources"]:
        labels = {"machine": source["name"]}
        yield "gpuyard_source_up", labels, 0.0 if source["error"] else 1.0
        share = source["share"]
        if share is None:
            continue
        yield "gpuyard_sample_age_seconds", labels, source["age_seconds"]
        yield from _list_machine(source, share, labels, identity)


def _list_machine(
    source: Mapping[str, Any], share: Mapping[str, Any], labels: Mapping[str, str], identity: Any
) -> Iterator[Value]:
    summary = summarize({"sources": [source]}, identity)
    cells = summary["machines"][0]["cells"]
    for state, count in Counter(cell["state"] for cell in cells).items():
        yield "gpuyard_gpus", {**labels, "state": state}, count
    for cell in cells:
        for name, key in _READINGS.items():
            if cell[key] is not None:
                yield name, {**labels, "gpu": str(cell["index"])}, cell[key]
    by_user: dict[str, list[Any]] = defaultdict(list)
    for row in summary["owners"]:
        by_user[row.user].append(row)
    leased = 0.0
    for user, rows in by_user.items():
        named = {**labels, "user": user}
        yield "gpuyard_leases", named, len(rows)
        yield "gpuyard_leased_gpus", named, sum(len(row.gpus) * row.share for row in rows)
        yield "gpuyard_idle_gpus", named, sum(len(row.gpus) for row in rows if row.idle_since)
        leased += sum(len(row.gpus) * row.share for row in rows)
    yield "gpuyard_queue_requests", labels, len(share["queue"])
    waits = [row["elapsed_seconds"] for row in share["queue"]]
    yield "gpuyard_queue_longest_wait_seconds", labels, max(waits, default=0.0)
    yield "gpuyard_jobs_waiting", labels, len(share.get("jobs", ()))
    for kind, count in Counter(row["kind"] for row in share["violations"]).items():
        yield "gpuyard_violations", {**labels, "kind": kind}, count
    if source["usd_per_gpu_hour"] is not None:
        yield "gpuyard_cloud_cost_usd_per_hour", labels, leased * source["usd_per_gpu_hour"]


def format_metrics(values: Iterator[Value]) -> str:
    """Format metrics in Prometheus' text format."""
    by_name: dict[str, list[str]] = {name: [] for name in _HELP}
    for name, labels, value in values:
        listed = ",".join(f'{key}="{_escape(text)}"' for key, text in labels.items())
        by_name[name].append(f"{name}{{{listed}}} {value:g}\n")
    return "".join(
        f"# HELP {name} {_HELP[name]}\n# TYPE {name} gauge\n{''.join(lines)}"
        for name, lines in by_name.items()
    )


def _escape(text: str) -> str:
    plain = make_printable(text)
    return plain.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


@router.get("/metrics", summary="Metrics for Prometheus", response_class=Response)
async def get_metrics(request: Request) -> Response:
    """Return the state of every machine in Prometheus' text format."""
    rendering = await render_now(request.app, request.state.identity)
    values = list_values(rendering.document, rendering.identity)
    return Response(format_metrics(values), media_type=_TYPE)
