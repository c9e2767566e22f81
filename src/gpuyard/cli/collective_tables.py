"""How a bench of collectives is shown: nccl-tests' columns, the model's beside them, then what is slow."""

from typing import TYPE_CHECKING

from gpuyard.cli.options import console, print_json, print_table

if TYPE_CHECKING:
    from gpuyard.measure import ResultsStore
    from gpuyard.measure.collectives.plan import CollectivesPlan
    from gpuyard.measure.collectives.records import CollectiveResult, CollectivesBench
    from gpuyard.run.places.place import RunPlace


def print_plan(plan: "CollectivesPlan") -> None:
    """For `--dry-run`."""
    from gpuyard.units import format_bytes

    print_table(
        f"{plan.workers} ranks {_where(plan.place.record(plan.workers))}, {plan.backend} on "
        f"{plan.device}, {plan.repeats} repeats",
        ["operation", "bytes", ""],
        [
            [operation, format_bytes(size), "would be measured"]
            for operation in plan.operations
            for size in plan.sizes
        ],
    )


def print_collectives(bench: "CollectivesBench") -> None:
    """Everything for people; the time of each repeat is in the JSON."""
    from gpuyard.units import format_bit_rate, format_seconds

    print_table(
        f"{bench.ranks} ranks {_where(bench.place)}, {bench.backend} on {bench.device}, "
        f"bench {bench.id}",
        [
            "operation",
            "bytes",
            "time",
            "spread",
            "algbw",
            "busbw",
            "expected",
            "of expected speed",
            "verdict",
        ],
        [_row(result) for result in bench.results],
    )
    sold = bench.link_bytes_per_second
    links = f"slowest link {format_bit_rate(sold)}, " if sold is not None else ""
    _say(
        f"The links by themselves: {links}bare sends around the ring "
        f"{format_bit_rate(bench.probe.ring_bytes_per_second)} each way, a step of the ring "
        f"{format_seconds(bench.probe.latency_seconds)}."
    )
    _print_findings(bench)
    for note in bench.notes:
        _say(note)


def list_collectives(store: "ResultsStore", *, json_output: bool) -> None:
    """One row a bench."""
    from gpuyard.units import format_bit_rate

    benches = store.list_collectives()
    if json_output:
        print_json([bench.model_dump(mode="json") for bench in benches])
        return
    if not benches:
        console(stderr=True).print(
            f"No benches of collectives in {store.path} yet. "
            "Make one with: gpuyard bench collectives",
            markup=False,
            soft_wrap=True,
        )
        return
    print_table(
        str(store.path),
        ["id", "made (UTC)", "where", "ranks", "backend", "best busbw", "below"],
        [
            [
                bench.id,
                bench.created_at[:16].replace("T", " "),
                _where(bench.place),
                str(bench.ranks),
                bench.backend,
                format_bit_rate(max(r.bus_bytes_per_second for r in bench.results)),
                str(sum(r.verdict != "normal" for r in bench.results)),
            ]
            for bench in benches
        ],
    )


def _row(result: "CollectiveResult") -> list[str]:
    from gpuyard.units import format_bit_rate, format_bytes, format_seconds, format_share

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


def _print_findings(bench: "CollectivesBench") -> None:
    from gpuyard.units import format_bytes, format_share

    for finding in bench.findings:
        sizes = (
            f"at {format_bytes(finding.smallest_bytes)}"
            if finding.smallest_bytes == finding.largest_bytes
            else f"between {format_bytes(finding.smallest_bytes)} and "
            f"{format_bytes(finding.largest_bytes)}"
        )
        _say(
            f"{finding.operation} is below what these links should give {sizes}, down to "
            f"{format_share(finding.worst_ratio)} of the expected speed. It may be that"
        )
        for cause in finding.causes:
            _say(f"  {cause.why}\n    try: {cause.next_step}")
    if not bench.findings and all(result.correct for result in bench.results):
        _say("All results are right, and every speed is normal for these links.")


def _where(place: "RunPlace") -> str:
    match place.kind:
        case "lab":
            dilated = f", dilated {place.dilation:g} times" if place.dilation > 1 else ""
            return f"in a lab of {len(place.nodes)} nodes{dilated}"
        case "here":
            return "on this machine"
        case _:
            return f"on {', '.join(place.nodes)}"


def _say(text: str) -> None:
    console().print(text, markup=False, highlight=False, soft_wrap=True)
