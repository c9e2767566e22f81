"""Reads the tables of nccl-tests and rccl-tests, also with the prefixes that mpirun and srun add to lines."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gpuyard.choices import Collective
from gpuyard.measure.tool_output.readings import CollectiveReading, SizedRate

SIGNATURE = re.compile(r"\balgbw\s+busbw\b")
# "[1,0]<stdout>:" of Open MPI and "0: " of srun --label
_PREFIX = re.compile(r"^(?:\[\d+,\d+\]<std(?:out|err)>:|\s*\d+:(?=\s))\s?")
_RANK = re.compile(
    r"Rank\s+(?P<rank>\d+)\s+(?:Group\s+\d+\s+)?Pid\s+(?P<pid>\d+)\s+on\s+(?P<host>\S+)\s+"
    r"device\s+(?P<device>\d+)\s+\[[0-9a-fA-Fx:.]+\]\s+(?P<gpu>.+)$"
)
_PROGRAM = re.compile(r"\b(all_reduce|all_gather|reduce_scatter|broadcast|reduce)_perf(?:_mpi)?\b")
_OPERATIONS: dict[str, Collective] = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "broadcast": "broadcast",
    "reduce": "reduce",
}
_WORDS = {"size", "count", "type", "redop", "root", "time", "algbw", "busbw", "error", "#wrong"}
_MAX_ROWS = 10_000


@dataclass
class _Table:
    """A table while it is read."""

    program: str | None
    columns: list[str]
    ranks: dict[tuple[str, str, str], tuple[int, str]]  # rank and GPU by host, pid, and device
    rows: list[SizedRate] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)  # busbw / algbw
    reduction: str = "none"


def read_nccl_tests(text: str) -> list[CollectiveReading]:
    """Read all tables."""
    return [_finish(table) for table in _read_tables(text) if table.rows]


def _read_tables(text: str) -> Iterator[_Table]:
    program: str | None = None
    ranks: dict[tuple[str, str, str], tuple[int, str]] = {}
    table: _Table | None = None
    for raw in text.splitlines():
        line = _PREFIX.sub("", raw).strip()
        if named := _PROGRAM.search(line):
            program = named[1]
        if match := _RANK.search(line):
            if table is not None and table.rows:  # the devices of the next run
                yield table
                table, ranks = None, {}
            key = match["host"], match["pid"], match["device"]
            ranks[key] = int(match["rank"]), match["gpu"].strip()
            continue
        words = line.lstrip("#").split()
        if SIGNATURE.search(line) and words[:1] == ["size"]:
            if table is not None and table.rows:
                yield table
                ranks = {}
            table = _Table(program, [word for word in words if word in _WORDS], ranks)
        elif table is not None and words and words[0].isdigit() and not line.startswith("#"):
            _read_row(table, words)
    if table is not None:
        yield table


def _read_row(table: _Table, words: Sequence[str]) -> None:
    if len(words) < len(table.columns) or len(table.rows) >= _MAX_ROWS:
        return
    cells: dict[str, list[str]] = {}
    for name, word in zip(table.columns, words, strict=False):
        cells.setdefault(name, []).append(word)
    try:
        size = int(cells["size"][0])
        # the faster of out-of-place and in-place: the links are the same
        times = [float(time) / 1e6 for time in cells["time"]]
        best = min(range(len(times)), key=times.__getitem__)
        algorithm, bus = float(cells["algbw"][best]), float(cells["busbw"][best])
        wrong = sum(_count_wrong(word) for word in cells.get("#wrong", cells.get("error", [])))
    except (KeyError, IndexError, ValueError):
        return
    if size <= 0 or times[best] <= 0:
        return
    table.reduction = cells.get("redop", ["none"])[0]
    row = SizedRate(size, bus * 1e9, times[best], wrong)
    if table.rows[-1:] == [row]:  # a log that has each line twice
        return
    table.rows.append(row)
    if algorithm > 0:
        table.ratios.append(bus / algorithm)


def _count_wrong(word: str) -> int:
    """Return the number of wrong elements; older versions print the largest error, e.g. 2e-07."""
    if word.isdigit():
        return int(word)
    return int(word != "N/A" and float(word) > 1e-2)


def _finish(table: _Table) -> CollectiveReading:
    ranks = [rank for rank, _ in table.ranks.values()]
    gpus = {gpu for _, gpu in table.ranks.values()}
    ratio = table.ratios[-1] if table.ratios else None
    # without MPI, each process is rank 0 of its own world
    separate = len(ranks) > 1 and set(ranks) == {0}
    count = len(ranks) or None
    operation = _OPERATIONS.get(table.program or "") or _infer_operation(
        ratio, table.reduction, count
    )
    return CollectiveReading(
        tool="rccl-tests"
        if any("AMD" in gpu or "Instinct" in gpu for gpu in gpus)
        else "nccl-tests",
        operation=operation,
        ranks=count or _infer_ranks(ratio, operation),
        nodes=len({host for host, _, _ in table.ranks}) or None,
        gpu_name=gpus.pop() if len(gpus) == 1 else None,
        rows=tuple(table.rows),
        separate_ranks=separate,
    )


def _infer_operation(ratio: float | None, reduction: str, ranks: int | None) -> Collective:
    """Infer the operation from busbw / algbw: 2(n−1)/n, (n−1)/n, or 1."""
    if ratio is None:
        return "all_reduce"
    both = reduction != "none"
    if ratio > 1.01 or (ranks == 2 and both and ratio > 0.9):
        return "all_reduce"
    if ratio > 0.99:
        return "reduce" if both else "broadcast"
    return "reduce_scatter" if both else "all_gather"


def _infer_ranks(ratio: float | None, operation: Collective) -> int | None:
    limit = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}.get(operation)
    if ratio is None or limit is None or not 0 < ratio < limit - 1e-3:
        return None
    return round(limit / (limit - ratio))
