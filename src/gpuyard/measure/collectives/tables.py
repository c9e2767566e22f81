"""A bench of collectives as tables: nccl-tests' columns, the model's beside them, then what is slow."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from gpuyard.measure.collectives.records import CollectiveResult, CollectivesBench
from gpuyard.measure.kind import FlatRows, ResultKind, Shown, cause_sentences, columns_of
from gpuyard.run.places.place import RunPlace
from gpuyard.table import Column, Table
from gpuyard.units import format_bit_rate, format_bytes, format_seconds, format_share

_COLUMNS: Mapping[str, Callable[[CollectivesBench, CollectiveResult], object]] = {
    **columns_of("id created_at kind"),
    "place": lambda bench, _: bench.place.kind,
    **columns_of("ranks backend device link_bytes_per_second"),
    "dilation": lambda bench, _: bench.place.dilation,
    **columns_of("operation algorithm bytes", about=1),
    "repeats": lambda _, result: len(result.repeats),
    **columns_of(
        "seconds spread algorithm_bytes_per_second bus_bytes_per_second expected_seconds ratio "
        "correct verdict",
        about=1,
    ),
    **columns_of("host cpu_model torch gpuyard", at="host"),
    "key": lambda bench, _: bench.key,
}


def where(place: RunPlace) -> str:
    """For titles."""
    match place.kind:
        case "lab":
            dilated = f", time dilated × {place.dilation:g}" if place.dilation > 1 else ""
            return f"in a lab of {len(place.nodes)} nodes{dilated}"
        case "here":
            return "on this machine"
        case _:
            return f"on {', '.join(place.nodes)}"


def _listing(benches: Sequence[CollectivesBench]) -> Table:
    return Table(
        "Benches of collectives",
        ["id", Column("made (UTC)", 1), "where", "ranks", "backend", "best busbw", "below"],
        [
            [
                bench.id,
                bench.made,
                where(bench.place),
                str(bench.ranks),
                bench.backend,
                format_bit_rate(max(r.bus_bytes_per_second for r in bench.results)),
                str(sum(r.verdict != "normal" for r in bench.results)),
            ]
            for bench in benches
        ],
    )


def _show(bench: CollectivesBench) -> Shown:
    """Everything for people; the time of each repeat is in the JSON."""
    title = (
        f"{bench.ranks} ranks {where(bench.place)}, {bench.backend} on {bench.device}, "
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
    rows = [_row(result) for result in bench.results]
    sold = bench.link_bytes_per_second
    links = f"slowest link {format_bit_rate(sold)}, " if sold is not None else ""
    alone = (
        f"The links alone: {links}plain sends around the ring "
        f"{format_bit_rate(bench.probe.ring_bytes_per_second)} each way, one hop of the ring "
        f"{format_seconds(bench.probe.latency_seconds)}."
    )
    table = Table(title, [*columns, "of expected speed", "verdict"], rows)
    return [table, alone, *_findings(bench), *bench.notes]


def _row(result: CollectiveResult) -> list[str]:
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


def _findings(bench: CollectivesBench) -> Iterator[str]:
    for finding in bench.findings:
        smallest, largest = map(format_bytes, (finding.smallest_bytes, finding.largest_bytes))
        sizes = f"at {smallest}" if smallest == largest else f"between {smallest} and {largest}"
        yield (
            f"{finding.operation} is slower than these links should allow {sizes}, down to "
            f"{format_share(finding.worst_ratio)} of the expected speed. Likely causes:"
        )
        yield from cause_sentences(finding.causes)
    if not bench.findings and all(result.correct for result in bench.results):
        yield "All results are correct, and every speed is normal for these links."


COLLECTIVES = ResultKind(
    "collectives",
    CollectivesBench,
    made_by="gpuyard bench collectives",
    listing=_listing,
    show=_show,
    flat=FlatRows(lambda bench: [(bench, result) for result in bench.results], _COLUMNS),
)
