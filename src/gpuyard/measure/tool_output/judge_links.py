"""Judges the rates of links inside a machine against its wiring, and against the other links of a table."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import log2
from statistics import median

from gpuyard.catalog import Gpu, gpus
from gpuyard.catalog.hardware import staged_copies
from gpuyard.hardware.clusters import resolve_machine
from gpuyard.hardware.graph import MachineGraph
from gpuyard.hardware.presets import build_preset
from gpuyard.measure.links.compare import SLOW_BELOW, STAGED_SLOW_BELOW
from gpuyard.measure.links.expected import expected_bytes_per_second
from gpuyard.measure.links.records import Direction, PlannedLink
from gpuyard.measure.record import Cause
from gpuyard.measure.tool_output.judge_ports import judge_port
from gpuyard.measure.tool_output.judgment import Judgment, ReadingVerdict
from gpuyard.measure.tool_output.readings import LinkReading, LinkTable
from gpuyard.specs import Cluster
from gpuyard.units import format_byte_rate

_OUTLIER = 0.75
_MAX_LISTED = 4
_HALVING_TOLERANCE = 0.25  # of the logarithm: a slot has a power of two of its lanes' rate
_THIS_LINK = "it is"
StagedRates = Mapping[tuple[str, str, Direction], float]


def judge_table(
    table: LinkTable,
    cluster: Cluster | None,
    link_bytes_per_second: float | None,
    staged: StagedRates,
) -> Iterator[Judgment]:
    """Yield the verdicts on a table; healthy links are one, and so are many that have the same causes."""
    links = table.links
    if table.tool == "OSU" and cluster is not None and cluster.nodes == 1:
        # its two ranks are GPUs of one machine
        links = tuple(
            replace(link, kind="gpu-gpu", source="GPU0", target="GPU1", peer=True) for link in links
        )
    if any(link.kind == "network" for link in links):
        for link in links:
            yield judge_port(table, link, cluster, link_bytes_per_second)
        return
    if not links:
        reason = "it has only small messages, which show the latency"
        yield Judgment(table.title, "", "not judged", None, reason=reason)
        return
    graph = _build_graph(cluster)
    typical = median(link.bytes_per_second for link in links)
    judged = [(link, _judge_link(table, link, graph, typical, staged)) for link in links]
    groups: dict[tuple[Cause, ...], list[tuple[LinkReading, Judgment]]] = {}
    for link, judgment in judged:
        if judgment.verdict == "slow":
            groups.setdefault(judgment.causes, []).append((link, judgment))
    for group in groups.values():
        yield from _merge_alike(group)
    healthy = [judgment for _, judgment in judged if judgment.verdict != "slow"]
    if healthy:
        yield replace(
            healthy[0],
            label=f"median of {len(healthy)} links",
            measured=_find_median(judgment.measured for judgment in healthy),
            expected=_find_median(judgment.expected for judgment in healthy),
            low=_find_median(judgment.low for judgment in healthy),
            high=_find_median(judgment.high for judgment in healthy),
        )


def _find_median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _merge_alike(group: Sequence[tuple[LinkReading, Judgment]]) -> list[Judgment]:
    """Return one judgment for many links with the same causes; it names the GPU that all of them share."""
    judgments = [judgment for _, judgment in group]
    if len(group) <= _MAX_LISTED:
        return judgments
    shared = set.intersection(*({link.source, link.target} for link, _ in group)) - {"host"}
    label, causes = f"median of {len(group)} slow links", judgments[0].causes
    if shared:
        gpu = shared.pop()
        label += f" of {gpu}"
        causes = tuple(
            cause.model_copy(update={"why": cause.why.replace(_THIS_LINK, f"{gpu}'s links are")})
            if cause.name == "outlier"
            else cause
            for cause in causes
        )
    rate = _find_median(judgment.measured for judgment in judgments)
    return [replace(judgments[0], label=label, measured=rate, causes=causes)]


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
    causes: list[Cause] = []
    if link.kind == "host-gpu" and graph and (gpu_id := graph.device(graph.gpus[0]).gpu):
        causes += _find_slots(gpus().get(gpu_id), rate / max(typical, expected or 0.0))
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
    if rate < _OUTLIER * typical:
        causes.append(
            Cause(
                name="outlier",
                why=f"{_THIS_LINK} slower than the others, which reach {format_byte_rate(typical)}",
                next_step="compare both GPUs in nvidia-smi topo -m, and check their slots with lspci -vv",
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
    low, high = _find_staged_range(planned, expected)
    return Judgment(
        table.title,
        planned.label,
        verdict,
        rate,
        expected,
        low,
        high,
        graph.name if graph else "",
        tuple(causes),
        "" if expected or causes else "name the machine with --on, e.g. --on 8xh100",
    )


def _find_slots(gpu: Gpu, ratio: float) -> Iterator[Cause]:
    """Yield the narrower or older slots that have this share of the GPU's own rate."""
    halvings = round(-log2(ratio))
    if halvings < 1 or abs(halvings + log2(ratio)) > _HALVING_TOLERANCE:
        return
    slots = [
        f"PCIe {generation} ×{lanes}"
        for older in range(halvings, -1, -1)
        if (generation := gpu.pcie_generation - older) >= 1
        and (lanes := gpu.pcie_lanes >> (halvings - older)) >= 1
    ]
    yield Cause(
        name="slot",
        why=f"it is as fast as {' or '.join(slots)}, not as PCIe {gpu.pcie_generation} ×{gpu.pcie_lanes}",
        next_step="check LnkSta with lspci -vv, or the link's width and generation with nvidia-smi -q, under load",
    )


def _find_staged_range(
    link: PlannedLink, expected: float | None
) -> tuple[float | None, float | None]:
    """Return the range of published copies through host memory, whose median is expected."""
    if link.peer is not False or expected is None:
        return None, None
    one_way = link.direction == "one-way"
    copies = [copy.one_way_share if one_way else copy.both_ways_share for copy in staged_copies()]
    shares = [share for share in copies if share is not None]
    middle = median(shares)
    return expected * min(shares) / middle, expected * max(shares) / middle
