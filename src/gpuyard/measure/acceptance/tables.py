"""Tables of acceptance runs for `gpuyard results`."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from gpuyard.measure.acceptance.records import Acceptance, NodeReport
from gpuyard.measure.kind import Content, CsvLayout, ResultKind, build_columns
from gpuyard.table import Column, Table
from gpuyard.units import (
    format_bit_rate,
    format_byte_rate,
    format_count,
    format_duration,
    format_usd,
)

_COLUMNS: Mapping[str, Callable[[Acceptance, NodeReport], object]] = {
    **build_columns("id created_at kind cluster accepted"),
    "node": lambda _, node: node.name,
    **build_columns("grade", position=1),
    "gpus": lambda _, node: None if node.inventory is None else len(node.inventory.gpus),
    **build_columns(
        "gemm_flops_per_second memory_bytes_per_second storage_read_bytes_per_second "
        "link_bytes_per_second",
        position=1,
    ),
    "findings": lambda _, node: "; ".join(f"{c.subject}: {c.text}" for c in node.findings),
    "key": lambda run, _: run.key,
}


def build_runs_table(runs: Sequence[Acceptance]) -> Table:
    columns = ("id", "created (UTC)", "cluster", "nodes", "fail", "warn", "accepted")
    return Table(
        "Acceptance runs",
        columns,
        [
            [
                run.id,
                run.created_minute,
                run.cluster,
                str(len(run.nodes)),
                str(len(run.faulty())),
                str(len(run.faulty("warn"))),
                "yes" if run.accepted else "no",
            ]
            for run in runs
        ],
    )


def build_nodes_table(run: Acceptance) -> Table:
    """Build a table with one row per node: what it has, what it does, and its grade, without empty columns."""
    columns = (
        "node",
        Column("GPUs", 2),
        Column("cores", 4),
        Column("matrix products", 3),
        Column("memory", 5),
        Column("storage", 6),
        Column("link", 1),
        "grade",
    )
    rows = [_format_node(node) for node in run.nodes]
    used = [index for index in range(len(columns)) if any(row[index] for row in rows)]
    return Table(
        f"{run.cluster}: {format_count(len(run.nodes), 'node')} in {format_duration(run.seconds)}",
        [columns[index] for index in used],
        [[row[index] for index in used] for row in rows],
    )


def _format_node(node: NodeReport) -> list[str]:
    def show(value: float | None, format_value: Callable[[float], str]) -> str:
        return "" if value is None else format_value(value)

    inventory = node.inventory
    return [
        node.name,
        "" if inventory is None or inventory.gpu_source == "none" else str(len(inventory.gpus)),
        "" if inventory is None else str(inventory.cores),
        show(node.gemm_flops_per_second, lambda rate: f"{rate / 1e9:.3g} GFLOP/s"),
        show(node.memory_bytes_per_second, format_byte_rate),
        show(node.storage_read_bytes_per_second, format_byte_rate),
        show(node.link_bytes_per_second, format_bit_rate),
        node.grade,
    ]


def describe_findings(run: Acceptance) -> Iterator[str]:
    """Describe each finding in a sentence, with its cost and what to try."""
    for check in run.all_findings:
        usd = run.usd_per_day(check)
        cost = "" if usd is None else f" It costs up to {format_usd(usd)} a day."
        where = check.node or "cluster"
        yield f"- {where}: {check.subject}: {check.text}.{cost} Try: {check.next_step}."


def _build_details(run: Acceptance) -> Content:
    verdict = "Accepted." if run.accepted else "Not accepted."
    left_out = [f"Left out: {what}." for what in run.left_out]
    return [verdict, build_nodes_table(run), *describe_findings(run), *left_out, *run.notes]


ACCEPTANCE = ResultKind(
    "acceptance",
    Acceptance,
    command="gpuyard accept 4x1xrtx-3090@1G --lab 4x1Gbit",
    build_table=build_runs_table,
    build_details=_build_details,
    csv_layout=CsvLayout(lambda run: [(run, node) for node in run.nodes], _COLUMNS),
)
