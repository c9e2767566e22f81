"""Reads the tables of the OSU micro-benchmarks: collectives by latency, and the bandwidth between two ranks."""

import re

from gpuyard.choices import Collective
from gpuyard.measure.tool_output.readings import (
    CollectiveReading,
    LinkReading,
    LinkTable,
    SizedRate,
)

SIGNATURE = re.compile(r"^#[ \t]*OSU\b.*\bTest\b", re.MULTILINE)
_TITLE = re.compile(
    r"^#\s*OSU\s+(?P<library>MPI|NCCL|RCCL|xCCL)?(?:-\w+)*\s*(?P<name>.+?)\s+Test\b"
)
_OPERATIONS: dict[str, Collective] = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "broadcast": "broadcast",
    "bcast": "broadcast",
    "reduce": "reduce",
}
_MIN_BYTES = 1 << 20  # smaller messages show the latency, not the rate


def read_osu(text: str) -> tuple[list[CollectiveReading], list[LinkTable]]:
    """Read all tables of a file."""
    collectives: list[CollectiveReading] = []
    tables: list[LinkTable] = []
    for part in re.split(r"(?=^#[ \t]*OSU\b)", text, flags=re.MULTILINE):
        title = _TITLE.match(part)
        rows = _read_rows(part)
        if title is None or not rows:
            continue
        name = title["name"].lower()
        operation = _OPERATIONS.get(re.sub(r"\s+(?:latency|bandwidth)$", "", name))
        if operation is not None:
            sized = tuple(SizedRate(size, None, value * 1e-6) for size, value in rows if value > 0)
            mpi = title["library"] in (None, "MPI")
            if sized:
                collectives.append(
                    CollectiveReading("OSU", operation, None, None, None, sized, uses_mpi=mpi)
                )
        elif "bandwidth" in name:
            tables.append(_read_bandwidth(title["name"], rows))
    return collectives, tables


def _read_rows(part: str) -> list[tuple[int, float]]:
    rows = re.finditer(r"^[ \t]*(\d+)[ \t]+(\d+(?:\.\d+)?)(?=\s|$)", part, re.MULTILINE)
    return [(int(row[1]), float(row[2])) for row in rows]


def _read_bandwidth(title: str, rows: list[tuple[int, float]]) -> LinkTable:
    large = [value for size, value in rows if size >= _MIN_BYTES]
    rate = max(large) * 1e6 if large else 0.0
    both = "bi-directional" in title.lower() or "bidirectional" in title.lower()
    link = LinkReading("network", "rank 0", "rank 1", "both-ways" if both else "one-way", rate)
    return LinkTable("OSU", f"OSU {title}", (), (link,) if rate else ())
