"""A bench of links as tables: rows, matrices of GPU pairs, then what is slow and why."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from gpuyard.measure.kind import FlatRows, ResultKind, Shown, cause_sentences, columns_of
from gpuyard.measure.links.records import ComparedLink, LinkBench
from gpuyard.table import Column, Table
from gpuyard.units import format_byte_rate, format_bytes, format_share

_COLUMNS: Mapping[str, Callable[[LinkBench, ComparedLink], object]] = {
    **columns_of("id created_at kind"),
    "link": lambda _, link: link.measured.kind,
    **columns_of("source target direction peer cores bytes", at="measured", about=1),
    "repeats": lambda _, link: len(link.measured.seconds),
    **columns_of("bytes_per_second spread", at="measured", about=1),
    **columns_of("expected_bytes_per_second ratio verdict", about=1),
    **columns_of("host cpu_model", at="host"),
    "gpus": lambda bench, _: "; ".join(bench.host.gpus),
    **columns_of("torch gpuyard", at="host"),
    "key": lambda bench, _: bench.key,
}
_MATRICES = {
    ("one-way", True): "One way with peer access",
    ("one-way", False): "One way, staged through host memory",
    ("both-ways", True): "Both ways at once with peer access",
    ("both-ways", False): "Both ways at once, staged through host memory",
}


def _listing(benches: Sequence[LinkBench]) -> Table:
    columns = (
        "id",
        "made (UTC)",
        "host",
        "GPUs",
        Column("copy", 1),
        Column("repeats", 2),
        "links",
        "slow",
    )
    return Table(
        "Benches of links",
        columns,
        [
            [
                bench.id,
                bench.made,
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


def _show(bench: LinkBench) -> Shown:
    """Everything for people; the numbers of each repeat are in the JSON."""
    compared = f", compared with {bench.model}" if bench.model else ""
    title = (
        f"{bench.host.host}, bench {bench.id}: {bench.repeats} repeats of "
        f"{format_bytes(bench.size_bytes)}{compared}"
    )
    columns = ("link", "measured", Column("spread", 1), "expected", "ratio", "verdict")
    rows = [_row(link) for link in bench.links if link.measured.kind != "gpu-gpu"]
    return [Table(title, columns, rows), *_matrices(bench), *_findings(bench), *bench.notes]


def _row(link: ComparedLink) -> list[str]:
    expected = link.expected_bytes_per_second
    return [
        link.measured.label,
        format_byte_rate(link.measured.bytes_per_second),
        format_share(link.measured.spread),
        format_byte_rate(expected) if expected is not None else "",
        format_share(link.ratio) if link.ratio is not None else "",
        link.verdict,
    ]


def _matrices(bench: LinkBench) -> Iterator[Table]:
    pairs = [link for link in bench.links if link.measured.kind == "gpu-gpu"]
    for way, title in _MATRICES.items():
        cells = {
            (link.measured.source, link.measured.target): _cell(link)
            for link in pairs
            if (link.measured.direction, link.measured.peer) == way
        }
        gpus = sorted({gpu for pair in cells for gpu in pair}, key=lambda gpu: (len(gpu), gpu))
        if gpus:
            yield Table(
                f"{title}, GB/s: measured of expected",
                ["from, to", *gpus],
                [[a, *(cells.get((a, b), "") for b in gpus)] for a in gpus],
            )


def _cell(link: ComparedLink) -> str:
    measured = f"{link.measured.bytes_per_second / 1e9:.1f}"
    if link.expected_bytes_per_second is None:
        return measured
    slow = " slow" if link.verdict == "slow" else ""
    return f"{measured} of {link.expected_bytes_per_second / 1e9:.1f}{slow}"


def _findings(bench: LinkBench) -> Iterator[str]:
    for finding in bench.findings:
        yield (
            f"{finding.label} runs at {format_byte_rate(finding.measured_bytes_per_second)}, "
            f"{format_share(finding.ratio)} of "
            f"{format_byte_rate(finding.expected_bytes_per_second)}. Likely causes:"
        )
        yield from cause_sentences(finding.causes)
    if bench.model and not bench.findings:
        yield "No link is more than 25 % below the model."


LINKS = ResultKind(
    "links",
    LinkBench,
    made_by="gpuyard bench links",
    listing=_listing,
    show=_show,
    flat=FlatRows(lambda bench: [(bench, link) for link in bench.links], _COLUMNS),
)
