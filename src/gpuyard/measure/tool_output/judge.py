"""Judges readings: normal or not, against what, and the likely causes with the commands that find out more."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log
from statistics import median
from typing import Literal

from gpuyard.catalog import links as catalog_links
from gpuyard.errors import UserMistake
from gpuyard.hardware.clusters import resolve_machine
from gpuyard.hardware.graph import MachineGraph
from gpuyard.hardware.presets import build_preset
from gpuyard.measure.collectives.expected import bus_factor
from gpuyard.measure.links.compare import SLOW_BELOW, STAGED_SLOW_BELOW, find_slot_causes
from gpuyard.measure.links.expected import expected_bytes_per_second
from gpuyard.measure.links.records import Direction, PlannedLink
from gpuyard.measure.record import Cause
from gpuyard.measure.tool_output.expected_collectives import Fault, list_faults, predict_rates
from gpuyard.measure.tool_output.readings import (
    CollectiveReading,
    GpuHealth,
    LinkReading,
    LinkTable,
    SizedRate,
    ToolOutput,
)
from gpuyard.predictor.platform import find_network
from gpuyard.specs import Cluster
from gpuyard.units import (
    format_bit_rate,
    format_byte_rate,
    format_bytes,
    format_count,
    format_watts,
)

ReadingVerdict = Literal["normal", "slow", "fast", "wrong", "not judged"]
MIN_JUDGED_BYTES = 8 << 20  # smaller messages show latency
_EXPLAINED_RATIO = 1.4  # a fault explains a rate that is within this factor of its own
_OUTLIER = 0.75
_MAX_LISTED = 4
StagedRates = Mapping[tuple[str, str, Direction], float]
_RDMA_SHARE = 0.9  # of the wire rate that a healthy port reaches with large messages


@dataclass(frozen=True)
class Judgment:
    """One reading and its verdict; rates are in bytes per second."""

    subject: str
    verdict: ReadingVerdict
    measured: float | None
    expected: float | None = None
    low: float | None = None
    high: float | None = None
    basis: str = ""  # the model that the expectation comes from
    causes: tuple[Cause, ...] = ()

    @property
    def ratio(self) -> float | None:
        return None if not self.measured or not self.expected else self.measured / self.expected


def judge_output(
    output: ToolOutput,
    cluster: Cluster | None,
    *,
    gpus: int | None = None,
    link_bytes_per_second: float | None = None,
) -> tuple[Judgment, ...]:
    """Judge every reading of a file; `cluster` is the machine that it was measured on."""
    judgments: list[Judgment] = []
    for reading in output.collectives:
        judgments += _judge_collective(reading, cluster, gpus)
    staged = {
        (link.source, link.target, link.direction): link.bytes_per_second
        for table in output.tables
        for link in table.links
        if link.peer is False
    }
    for table in output.tables:
        judgments += _judge_table(table, cluster, link_bytes_per_second, staged)
    for health in output.gpus:
        judgments.append(_judge_gpu(health))
    if output.acs_bridges:
        judgments.append(_judge_acs(output.acs_bridges))
    return tuple(judgments)


def _judge_collective(
    reading: CollectiveReading, cluster: Cluster | None, gpus: int | None
) -> Iterator[Judgment]:
    ranks = gpus or reading.ranks
    name = reading.operation.replace("_", "-")
    if reading.separate_ranks:
        alone = Cause(
            name="no-mpi",
            why=f"all {reading.ranks} processes are rank 0: each measured itself alone",
            next_step="build nccl-tests with MPI=1, and start it with mpirun or srun --mpi=pmix",
        )
        yield Judgment(name, "wrong", None, causes=(alone,))
        return
    if ranks is None:
        raise UserMistake("the file does not say how many ranks took part: add --gpus N")
    if ranks == 1:
        raise UserMistake(
            "one rank took part, so nothing was exchanged: measure two GPUs or more, e.g. with "
            "all_reduce_perf -b 8M -e 8G -f 2 -g 2"
        )
    if cluster is None:
        raise UserMistake(
            "the file does not say on which machine it was measured: add --on, e.g. --on 8xh100 or "
            "--on 4xdgx-h100"
        )
    per_node = resolve_machine(cluster)[1].gpus
    nodes = reading.nodes or max(1, -(-ranks // per_node))
    subject = f"{name} over {ranks} GPUs" + (f" on {nodes} nodes" if nodes > 1 else "")
    judged = [row for row in reading.rows if row.bytes >= MIN_JUDGED_BYTES] or [reading.rows[-1]]
    rates = [_find_bus_rate(row, reading, ranks) for row in judged]
    expected = predict_rates(
        cluster, ranks, nodes, reading.operation, [row.bytes for row in judged]
    )
    wrong = [row for row in judged if row.wrong]
    for row, rate, mean, low, high in zip(
        judged, rates, expected.expected, expected.low, expected.high, strict=True
    ):
        verdict: ReadingVerdict = "slow" if rate < low else "fast" if rate > high else "normal"
        causes: tuple[Cause, ...] = ()
        if row.wrong:
            verdict = "wrong"
        elif row.bytes < MIN_JUDGED_BYTES:
            verdict = "not judged"
        elif verdict == "slow" and row is judged[-1] and not wrong:
            faults = list_faults(cluster, ranks, nodes, reading.operation, row.bytes)
            causes = tuple(_explain(rate, mean, faults))
        yield Judgment(
            f"{subject}, {format_bytes(row.bytes)}",
            verdict,
            rate,
            mean,
            low,
            high,
            cluster.name,
            causes,
        )


def _find_bus_rate(row: SizedRate, reading: CollectiveReading, ranks: int) -> float:
    if row.bus_bytes_per_second is not None:
        return row.bus_bytes_per_second
    return row.bytes / row.seconds * bus_factor(reading.operation, ranks)


def _explain(rate: float, expected: float, faults: Iterable[Fault]) -> Iterator[Cause]:
    """Yield the faults whose rate is near the measured one, the nearest first."""
    near = [
        fault
        for fault in faults
        if rate > 0 and abs(log(rate / fault.bytes_per_second)) < log(_EXPLAINED_RATIO)
    ]
    for fault in sorted(near, key=lambda fault: abs(log(rate / fault.bytes_per_second))):
        would = format_byte_rate(fault.bytes_per_second)
        yield fault.cause.model_copy(update={"why": f"{fault.cause.why} ({would} expected then)"})
    yield Cause(
        name="unknown",
        why=f"it reaches {rate / expected:.0%} of what this machine should"
        + ("" if near else ", and no single fault that gpuyard knows leaves that rate"),
        next_step="run it again with NCCL_DEBUG=INFO, and pass lspci -vv and nvidia-smi -q to gpuyard "
        "bench collectives --from; then halve the nodes until the slow one is found",
    )


def _judge_table(
    table: LinkTable,
    cluster: Cluster | None,
    link_bytes_per_second: float | None,
    staged: StagedRates,
) -> Iterator[Judgment]:
    links = table.links
    if table.tool == "OSU" and cluster is not None and cluster.nodes == 1:
        # its two ranks are GPUs of one machine
        links = tuple(
            replace(link, kind="gpu-gpu", source="GPU0", target="GPU1", peer=True) for link in links
        )
    if any(link.kind == "network" for link in links):
        for link in links:
            yield _judge_network(table, link, cluster, link_bytes_per_second)
        return
    if not links:
        yield Judgment(f"{table.title}, only small messages", "not judged", None)
        return
    graph = _build_graph(cluster)
    typical = median(link.bytes_per_second for link in links)
    judged = [(link, _judge_link(table, link, graph, typical, staged)) for link in links]
    # a matrix of healthy links is one line; slow ones are listed, unless many have the same causes
    groups: dict[tuple[Cause, ...], list[tuple[LinkReading, Judgment]]] = {}
    for link, judgment in judged:
        if judgment.verdict == "slow":
            groups.setdefault(judgment.causes, []).append((link, judgment))
    for group in groups.values():
        yield from _merge_alike(table, group)
    healthy = [judgment for _, judgment in judged if judgment.verdict != "slow"]
    if healthy:
        rates = [judgment.measured or 0.0 for judgment in healthy]
        yield Judgment(
            f"{table.title}, median of {len(healthy)} links",
            healthy[0].verdict,
            median(rates),
            healthy[0].expected,
            basis=healthy[0].basis,
        )


def _merge_alike(table: LinkTable, group: Sequence[tuple[LinkReading, Judgment]]) -> list[Judgment]:
    """Return one judgment for many links with the same causes; it names the GPU that all of them share."""
    judgments = [judgment for _, judgment in group]
    if len(group) <= _MAX_LISTED:
        return judgments
    shared = set.intersection(*({link.source, link.target} for link, _ in group)) - {"host"}
    whose = f" of {shared.pop()}" if shared else ""
    subject = f"{table.title}, median of {len(group)} slow links{whose}"
    rate = median(judgment.measured or 0.0 for judgment in judgments)
    return [replace(judgments[0], subject=subject, measured=rate)]


def _build_graph(cluster: Cluster | None) -> MachineGraph | None:
    if cluster is None:
        return None
    gpu, machine = resolve_machine(cluster)
    return build_preset(machine.topology, gpu, machine.gpus, machine.socket_link)


def _judge_link(
    table: LinkTable,
    link: LinkReading,
    graph: MachineGraph | None,
    typical: float,
    staged: StagedRates,
) -> Judgment:
    planned = PlannedLink(
        kind="host-gpu" if link.kind == "host-gpu" else "gpu-gpu",
        source=link.source,
        target=link.target,
        direction=link.direction,
        peer=link.peer,
    )
    expected = expected_bytes_per_second(graph, planned) if graph else None
    rate = link.bytes_per_second
    below = STAGED_SLOW_BELOW if link.peer is False else SLOW_BELOW
    causes = []
    if rate < _OUTLIER * typical:
        causes.append(
            Cause(
                name="outlier",
                why=f"the other links of this table reach {format_byte_rate(typical)}",
                next_step="compare both GPUs in nvidia-smi topo -m, and check their slots with lspci -vv",
            )
        )
    detour = staged.get((link.source, link.target, link.direction))
    if link.peer and detour and rate < _OUTLIER * detour:
        causes.append(
            Cause(
                name="slow-peer",
                why="peer access is slower than copies through host memory",
                next_step="look for an IOMMU in /proc/cmdline and for ACSCtl in lspci -vv, and turn both off "
                "if this host has no virtual machines; until then, set NCCL_P2P_DISABLE=1",
            )
        )
    if expected and rate < below * expected:
        causes.append(
            Cause(
                name="slow-link",
                why=f"the wiring of {graph.name if graph else 'this machine'} allows "
                f"{format_byte_rate(expected)}",
                next_step="check lanes and generation with nvidia-smi -q under load, ACS with lspci -vv, "
                "and NVLinks with nvidia-smi nvlink --status",
            )
        )
    verdict: ReadingVerdict = "slow" if causes else "normal" if expected else "not judged"
    return Judgment(
        f"{planned.label} ({table.title})",
        verdict,
        rate,
        expected,
        basis=graph.name if graph else "",
        causes=tuple(causes),
    )


def _judge_network(
    table: LinkTable, link: LinkReading, cluster: Cluster | None, nominal: float | None
) -> Judgment:
    basis = "the rate given with --link"
    if nominal is None and cluster is not None and (network := find_network(cluster)) is not None:
        nominal = network.rate or catalog_links().get(network.link or "").raw_bytes_per_second
        basis = f"one port of {cluster.name}"
    both = 2 if link.direction == "both-ways" else 1
    rate = link.bytes_per_second / both
    if nominal is None and table.tool == "OSU":  # its ranks may be on one machine
        return Judgment(f"{table.title}, {link.source} to {link.target}", "not judged", rate)
    if nominal is None:
        nominal = _find_standard_rate(rate)
        basis = f"the next standard rate, {format_bit_rate(nominal)}; name yours with --link"
    expected = _RDMA_SHARE * nominal
    causes: tuple[Cause, ...] = ()
    if rate < SLOW_BELOW * nominal:
        causes = tuple(_explain_port(rate, nominal))
    return Judgment(
        f"{table.title}, {link.source}",
        "slow" if causes else "normal",
        rate,
        expected,
        SLOW_BELOW * nominal,
        nominal,
        basis,
        causes,
    )


def _find_standard_rate(rate: float) -> float:
    standard = sorted(
        {
            link.raw_bytes_per_second
            for link in catalog_links()
            if link.kind in ("ethernet", "infiniband")
        }
    )
    return next((nominal for nominal in standard if nominal >= rate), rate)


def _explain_port(rate: float, nominal: float) -> Iterator[Cause]:
    slower = _find_standard_rate(rate)
    if slower < nominal and rate > SLOW_BELOW * slower:
        yield Cause(
            name="slower-link",
            why=f"it is as fast as a healthy link of {format_bit_rate(slower)}",
            next_step="check the negotiated rate and width with ibstat or ethtool, and the cable",
        )
    yield Cause(
        name="slot",
        why="the card's PCIe slot may have too few lanes, or its memory lies on the other socket",
        next_step="check LnkSta with lspci -vv, and pin the test: numactl --cpunodebind with the card's NUMA node",
    )
    yield Cause(
        name="congestion",
        why="other traffic, or lost packets, may slow the link",
        next_step="repeat it back to back, and compare perfquery or ethtool -S before and after (RoCE: PFC and ECN)",
    )


def _judge_gpu(health: GpuHealth) -> Judgment:
    causes = list(_find_gpu_causes(health))
    return Judgment(
        f"{health.slot.gpu} {health.name} ({health.slot.address})",
        "slow" if causes else "normal",
        None,
        causes=tuple(causes),
    )


def _find_gpu_causes(health: GpuHealth) -> Iterator[Cause]:
    for cause in find_slot_causes(health.slot):
        if cause.name != "power-saving" or not health.is_idle:
            yield cause
    for reason in health.throttle_reasons:
        lowered = (
            health.power_limit_watts is not None
            and health.default_power_limit_watts is not None
            and health.power_limit_watts < health.default_power_limit_watts
        )
        if reason == "SW Power Cap" and not lowered:
            continue  # every busy GPU runs into its own limit
        limit = (
            f": {format_watts(health.power_limit_watts or 0)} instead of "
            f"{format_watts(health.default_power_limit_watts or 0)}"
            if reason == "SW Power Cap"
            else ""
        )
        yield Cause(
            name="throttled",
            why=f"its clocks are held down: {reason}{limit}",
            next_step="check temperature, fans, and power cables, and nvidia-smi -q -d PERFORMANCE,POWER under load",
        )
    if health.uncorrectable_errors:
        yield Cause(
            name="memory-errors",
            why=f"{health.uncorrectable_errors} uncorrectable memory errors since the last reset",
            next_step="drain the node, reset the GPU, and run dcgmi diag -r 3; replace it if they come back",
        )
    if health.pending_repairs:
        yield Cause(
            name="pending-repairs",
            why="faulty memory waits to be replaced by spare rows",
            next_step="drain the node and reset the GPU: nvidia-smi --gpu-reset",
        )


def _judge_acs(bridges: Sequence[str]) -> Judgment:
    cause = Cause(
        name="acs",
        why=f"ACS is on at {', '.join(bridges[:4])}{' …' if len(bridges) > 4 else ''}: traffic between "
        "GPUs goes up to the CPU",
        next_step="if this host has no virtual machines, turn ACS off in the BIOS, or with: "
        f"setpci -s {bridges[0]} ECAP_ACS+6.w=0000",
    )
    return Judgment(format_count(len(bridges), "PCIe bridge"), "slow", None, causes=(cause,))
