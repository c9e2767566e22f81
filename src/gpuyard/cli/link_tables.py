"""How a bench of links is shown: rows, matrices of GPU pairs, then what is slow and why."""

from typing import TYPE_CHECKING

from gpuyard.cli.options import console, print_json, print_table

if TYPE_CHECKING:
    from gpuyard.measure import ResultsStore
    from gpuyard.measure.links.plan import LinkPlan
    from gpuyard.measure.links.records import ComparedLink, LinkBench

_MATRICES = {
    ("one-way", True): "One way with peer access",
    ("one-way", False): "One way, staged through host memory",
    ("both-ways", True): "Both ways at once with peer access",
    ("both-ways", False): "Both ways at once, staged through host memory",
}


def print_plan(plan: "LinkPlan") -> None:
    """For `--dry-run`."""
    from gpuyard.units import format_bytes

    print_table(
        f"{plan.host.host}: {len(plan.links)} links, {plan.repeats} repeats of "
        f"{format_bytes(plan.size_bytes)}",
        ["link", "direction", ""],
        [[link.label, link.direction, "would be measured"] for link in plan.links],
    )


def print_links(bench: "LinkBench") -> None:
    """Everything for people; the numbers of each repeat are in the JSON."""
    from gpuyard.units import format_bytes

    beside = f", beside {bench.model}" if bench.model else ""
    print_table(
        f"{bench.host.host}, bench {bench.id}: {bench.repeats} repeats of "
        f"{format_bytes(bench.size_bytes)}{beside}",
        ["link", "measured", "spread", "expected", "ratio", "verdict"],
        [_row(link) for link in bench.links if link.measured.kind != "gpu-gpu"],
    )
    for (direction, peer), title in _MATRICES.items():
        _print_matrix(
            title,
            [
                link
                for link in bench.links
                if link.measured.kind == "gpu-gpu"
                and (link.measured.direction, link.measured.peer) == (direction, peer)
            ],
        )
    _print_findings(bench)
    for note in bench.notes:
        console().print(note, markup=False, highlight=False, soft_wrap=True)


def _row(link: "ComparedLink") -> list[str]:
    from gpuyard.units import format_byte_rate, format_share

    expected = link.expected_bytes_per_second
    return [
        link.measured.label,
        format_byte_rate(link.measured.bytes_per_second),
        format_share(link.measured.spread),
        format_byte_rate(expected) if expected is not None else "",
        format_share(link.ratio) if link.ratio is not None else "",
        link.verdict,
    ]


def _print_matrix(title: str, links: "list[ComparedLink]") -> None:
    if not links:
        return
    cells = {(link.measured.source, link.measured.target): _cell(link) for link in links}
    gpus = sorted({gpu for pair in cells for gpu in pair}, key=lambda gpu: (len(gpu), gpu))
    print_table(
        f"{title}, GB/s: measured of expected",
        ["from, to", *gpus],
        [[a, *(cells.get((a, b), "") for b in gpus)] for a in gpus],
    )


def _cell(link: "ComparedLink") -> str:
    measured = f"{link.measured.bytes_per_second / 1e9:.1f}"
    if link.expected_bytes_per_second is None:
        return measured
    slow = " slow" if link.verdict == "slow" else ""
    return f"{measured} of {link.expected_bytes_per_second / 1e9:.1f}{slow}"


def _print_findings(bench: "LinkBench") -> None:
    from gpuyard.units import format_byte_rate, format_share

    out = console()

    def say(text: str) -> None:
        out.print(text, markup=False, highlight=False, soft_wrap=True)

    for finding in bench.findings:
        say(
            f"{finding.label} runs at {format_byte_rate(finding.measured_bytes_per_second)}, "
            f"{format_share(finding.ratio)} of "
            f"{format_byte_rate(finding.expected_bytes_per_second)}. It may be that"
        )
        for cause in finding.causes:
            say(f"  {cause.why}\n    try: {cause.next_step}")
    if bench.model and not bench.findings:
        say("No link is more than 25 % below the model.")


def list_links(store: "ResultsStore", *, json_output: bool) -> None:
    """One bench a row."""
    from gpuyard.units import format_bytes

    benches = store.list_links()
    if json_output:
        print_json([bench.model_dump(mode="json") for bench in benches])
        return
    if not benches:
        console(stderr=True).print(
            f"No benches of links in {store.path} yet. Make one with: gpuyard bench links",
            markup=False,
            soft_wrap=True,
        )
        return
    print_table(
        str(store.path),
        ["id", "made (UTC)", "host", "GPUs", "copy", "repeats", "links", "slow"],
        [
            [
                bench.id,
                bench.created_at[:16].replace("T", " "),
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
