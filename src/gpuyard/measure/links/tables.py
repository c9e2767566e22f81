"""Tables of a link bench: its links, matrices of GPU pairs, then slow links and their causes."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from gpuyard.measure.kind import Content, CsvLayout, ResultKind, build_columns, describe_causes
from gpuyard.measure.links.records import ComparedLink, LinkBench
from gpuyard.table import Column, Table
from gpuyard.units import format_byte_rate, format_bytes, format_share

_COLUMNS: Mapping[str, Callable[[LinkBench, ComparedLink], object]] = {
    **build_columns("id created_at kind"),
    "link": lambda _, link: link.measured.kind,
    **build_columns("source target direction peer cores bytes", parent="measured", position=1),
    "repeats": lambda _, link: len(link.measured.seconds),
    **build_columns("bytes_per_second spread", parent="measured", position=1),
    **build_columns("expected_bytes_per_second ratio verdict", position=1),
    **build_columns("host cpu_model", parent="host"),
    "gpus": lambda bench, _: "; ".join(bench.host.gpus),
    **build_columns("torch gpuyard", parent="host"),
    "key": lambda bench, _: bench.key,
}
_MATRICES = {
    ("one-way", True): "One way with peer access",
    ("one-way", False): "One way, staged through host memory",
    ("both-ways", True): "Both ways at once with peer access",
    ("both-ways", False): "Both ways at once, staged through host memory",
}


def _build_benches_table(benches: Sequence[LinkBench]) -> Table:
    columns = (
        "id",
        "created (UTC)",
        "host",
        "GPUs",
        Column("copy", 1),
        Column("repeats", 2),
        "links",
        "slow",
    )
    return Table(
        "Link benches",
        columns,
        [
            [
                bench.id,
                bench.created_minute,
                bench.host.host,
                str(len(bench.host.gpus)),
                format_bytes(bench.size_bytes),
                str(bench.repeats),
                str(len(bench.links)),
                str(len(bench.findings)),
            ]
            for bench in benches
        ],
    )


def _build_details(bench: LinkBench) -> Content:
    compared = f", compared with {bench.model}" if bench.model else ""
    title = (
        f"{bench.host.host}, bench {bench.id}: {bench.repeats} repeats of "
        f"{format_bytes(bench.size_bytes)}{compared}"
    )
    columns = ("link", "measured", Column("spread", 1), "expected", "ratio", "verdict")
    rows = [_format_row(link) for link in bench.links if link.measured.kind != "gpu-gpu"]
    table = Table(title, columns, rows)
    return [table, *_build_matrices(bench), *_describe_findings(bench), *bench.notes]


def _format_row(link: ComparedLink) -> list[str]:
    expected = link.expected_bytes_per_second
    return [
        link.measured.label,
        format_byte_rate(link.measured.bytes_per_second),
        format_share(link.measured.spread),
        format_byte_rate(expected) if expected is not None else "",
        format_share(link.ratio) if link.ratio is not None else "",
        link.verdict,
    ]


def _build_matrices(bench: LinkBench) -> Iterator[Table]:
    pairs = [link for link in bench.links if link.measured.kind == "gpu-gpu"]
    for mode, title in _MATRICES.items():
        cells = {
            (link.measured.source, link.measured.target): _format_cell(link)
            for link in pairs
            if (link.measured.direction, link.measured.peer) == mode
        }
        gpus = sorted({gpu for pair in cells for gpu in pair}, key=lambda gpu: (len(gpu), gpu))
        if gpus:
            yield Table(
                f"{title}, GB/s: measured of expected",
                ["from, to", *gpus],
                [[a, *(cells.get((a, b), "") for b in gpus)] for a in gpus],
            )


def _format_cell(link: ComparedLink) -> str:
    measured = f"{link.measured.bytes_per_second / 1e9:.1f}"
    if link.expected_bytes_per_second is None:
        return measured
    slow = " slow" if link.verdict == "slow" else ""
    return f"{measured} of {link.expected_bytes_per_second / 1e9:.1f}{slow}"


def _describe_findings(bench: LinkBench) -> Iterator[str]:
    for finding in bench.findings:
        yield (
            f"{finding.label} runs at {format_byte_rate(finding.measured_bytes_per_second)}, "
            f"{format_share(finding.ratio)} of "
            f"{format_byte_rate(finding.expected_bytes_per_second)}. Likely causes:"
        )
        yield from describe_causes(finding.causes)
    if bench.model and not bench.findings:
        yield "No link is more than 25% below the model."


LINKS = ResultKind(
    "links",
    LinkBench,
    command="gpuyard bench links",
    build_table=_build_benches_table,
    build_details=_build_details,
    csv_layout=CsvLayout(lambda bench: [(bench, link) for link in bench.links], _COLUMNS),
)
