"""Tables of a collectives bench: the columns of nccl-tests, the model's, then slow operations."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from gpuyard.measure.collectives.records import CollectiveResult, CollectivesBench
from gpuyard.measure.kind import Content, CsvLayout, ResultKind, build_columns, describe_causes
from gpuyard.run.places.place import RunPlace
from gpuyard.table import Column, Table
from gpuyard.units import format_bit_rate, format_bytes, format_seconds, format_share

_COLUMNS: Mapping[str, Callable[[CollectivesBench, CollectiveResult], object]] = {
    **build_columns("id created_at kind"),
    "place": lambda bench, _: bench.place.kind,
    **build_columns("ranks backend device link_bytes_per_second"),
    "dilation": lambda bench, _: bench.place.dilation,
    **build_columns("operation algorithm bytes", position=1),
    "repeats": lambda _, result: len(result.repeats),
    **build_columns(
        "seconds spread algorithm_bytes_per_second bus_bytes_per_second expected_seconds ratio "
        "correct verdict",
        position=1,
    ),
    **build_columns("host cpu_model torch gpuyard", parent="host"),
    "key": lambda bench, _: bench.key,
}


def describe_place(place: RunPlace) -> str:
    """Describe where the ranks ran, for titles."""
    match place.kind:
        case "lab":
            dilated = f", time dilated × {place.dilation:g}" if place.dilation > 1 else ""
            return f"in a lab of {len(place.nodes)} nodes{dilated}"
        case "here":
            return "on this machine"
        case _:
            return f"on {', '.join(place.nodes)}"


def _build_benches_table(benches: Sequence[CollectivesBench]) -> Table:
    return Table(
        "Collectives benches",
        ["id", Column("created (UTC)", 1), "place", "ranks", "backend", "best busbw", "below"],
        [
            [
                bench.id,
                bench.created_minute,
                describe_place(bench.place),
                str(bench.ranks),
                bench.backend,
                format_bit_rate(max(r.bus_bytes_per_second for r in bench.results)),
                str(sum(r.verdict != "normal" for r in bench.results)),
            ]
            for bench in benches
        ],
    )


def _build_details(bench: CollectivesBench) -> Content:
    title = (
        f"{bench.ranks} ranks {describe_place(bench.place)}, {bench.backend} on {bench.device}, "
        f"bench {bench.id}"
    )
    columns = (
        "operation",
        "bytes",
        "time",
        Column("spread", 2),
        Column("algbw", 1),
        "busbw",
        Column("expected", 3),
    )
    rows = [_format_row(result) for result in bench.results]
    nominal = bench.link_bytes_per_second
    slowest = f"slowest link {format_bit_rate(nominal)}, " if nominal is not None else ""
    links = (
        f"The links alone: {slowest}plain sends around the ring "
        f"{format_bit_rate(bench.probe.ring_bytes_per_second)} each way, one hop of the ring "
        f"{format_seconds(bench.probe.latency_seconds)}."
    )
    table = Table(title, [*columns, "of expected speed", "verdict"], rows)
    return [table, links, *_describe_findings(bench), *bench.notes]


def _format_row(result: CollectiveResult) -> list[str]:
    return [
        result.operation,
        format_bytes(result.bytes),
        format_seconds(result.seconds),
        format_share(result.spread),
        format_bit_rate(result.algorithm_bytes_per_second),
        format_bit_rate(result.bus_bytes_per_second),
        f"{format_seconds(result.expected_seconds)} ({result.algorithm})",
        format_share(result.ratio),
        result.verdict,
    ]


def _describe_findings(bench: CollectivesBench) -> Iterator[str]:
    for finding in bench.findings:
        smallest, largest = map(format_bytes, (finding.smallest_bytes, finding.largest_bytes))
        sizes = f"at {smallest}" if smallest == largest else f"between {smallest} and {largest}"
        yield (
            f"{finding.operation} is slower than these links should allow {sizes}, down to "
            f"{format_share(finding.worst_ratio)} of the expected speed. Likely causes:"
        )
        yield from describe_causes(finding.causes)
    if not bench.findings and all(result.correct for result in bench.results):
        yield "All results are correct, and every speed is normal for these links."


COLLECTIVES = ResultKind(
    "collectives",
    CollectivesBench,
    command="gpuyard bench collectives",
    build_table=_build_benches_table,
    build_details=_build_details,
    csv_layout=CsvLayout(lambda bench: [(bench, result) for result in bench.results], _COLUMNS),
)
