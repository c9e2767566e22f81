"""Wires at the catalog's rates, as every reader of a machine lays them, and what GPUs reach over them: every other
GPU, a pair at a time (rate, latency and class of the path; rows send), and the memory of their host, all at once."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuyard.catalog import Gpu, links
from gpuyard.hardware.graph import GPU_LINKS, Hop, MachineGraph, Wire
from gpuyard.hardware.rings import STAGED_SHARE

# one lane in one direction, 10^9 bytes a second on the wire (PCI-SIG: 2.5, 5, 8, 16, 32 GT/s less the
# line code; generation 6 as the catalog has it)
_LANE_GB_PER_SECOND = {1: 0.25, 2: 0.5, 3: 0.9846, 4: 1.9692, 5: 3.9385, 6: 7.5625}
_NEWEST = max(_LANE_GB_PER_SECOND)
_LANES = (16, 8, 4, 2, 1)
# the link between sockets in machines of a PCIe generation's years
_SOCKET_LINK = {
    1: "qpi-8.0",
    2: "qpi-8.0",
    3: "upi-10.4",
    4: "infinity-fabric-2",
    5: "upi-16",
    6: "upi-20",
}
_QPI_UNTIL = 2017  # GPUs of these years went into Xeon E5 machines, whose sockets are joined by QPI


@dataclass(frozen=True)
class Slot:
    """A PCIe link by generation and lanes."""

    generation: int
    lanes: int

    @property
    def raw_bytes_per_second(self) -> float:
        return _LANE_GB_PER_SECOND[min(self.generation, _NEWEST)] * self.lanes * 1e9

    def __str__(self) -> str:
        return f"PCIe {self.generation}.0 x{self.lanes}"


USUAL_SLOT = Slot(3, 16)
UNKNOWN_SLOT_NOTE = "the PCIe generation of the slots is unknown: PCIe 3.0 x16 is assumed; name the GPU to change it"


def slot_of_gpu(gpu: Gpu | None) -> Slot:
    return Slot(gpu.pcie_generation, gpu.pcie_lanes) if gpu else USUAL_SLOT


def slot_of_speed(gb_per_second: float) -> Slot | None:
    """The slot of a rate on the wire, as hwloc gives it; None where none fits.

    An x16 of one generation is as fast as an x8 of the next: the widest is taken.
    """
    slots = (Slot(generation, lanes) for lanes in _LANES for generation in _LANE_GB_PER_SECOND)
    return next((slot for slot in slots if _runs_at(slot, gb_per_second)), None)


def pcie_wire(a: str, b: str, slot: Slot) -> Wire:
    name = f"pcie-{slot.generation}-x{slot.lanes}"
    usual = links().get("pcie-3-x16")
    if name in links():
        rate = links().get(name).effective_bytes_per_second
    else:
        rate = pcie_effective(slot.raw_bytes_per_second)
    return Wire(a, b, "pcie", rate, usual.latency_seconds / 2, slot.generation, slot.lanes)


def pcie_effective(raw_bytes_per_second: float) -> float:
    """What arrives of a rate on the wire that the catalog has no row for: the share of PCIe 3.0 x16."""
    usual = links().get("pcie-3-x16")
    return raw_bytes_per_second * usual.effective_bytes_per_second / usual.raw_bytes_per_second


def internal_wire(a: str, b: str, slot: Slot) -> Wire:
    # inside a CPU everything moves faster than any slot; sixteen slots at once are no limit
    return Wire(a, b, "internal", 16 * pcie_wire(a, b, slot).bytes_per_second, 0.0)


def socket_wire(
    a: str, b: str, slot: Slot, gpu: Gpu | None = None, name: str | None = None
) -> Wire:
    """`name` is a row of the catalog, where it is known what joins the sockets."""
    old = gpu is not None and gpu.pcie_generation == 3 and gpu.released <= _QPI_UNTIL
    usual = "qpi-9.6" if old else _SOCKET_LINK[min(slot.generation, _NEWEST)]
    link = links().get(name or usual)
    return Wire(a, b, "socket", link.effective_bytes_per_second, link.latency_seconds)


def same_socket_wire(a: str, b: str, slot: Slot) -> Wire:
    """Between two NUMA nodes of one socket: NVIDIA calls the path SYS, but it is as fast as the CPU."""
    return Wire(a, b, "socket", internal_wire(a, b, slot).bytes_per_second, 0.0)


def gpu_link_wire(a: str, b: str, link: str, count: int) -> Wire:
    """`link` is a row of the catalog, e.g. nvlink-3-ga10x."""
    one = links().get(link)
    nvlink = one.kind == "nvlink"
    return Wire(
        a,
        b,
        "nvlink" if nvlink else "fabric",
        count * one.effective_bytes_per_second,
        one.latency_seconds,
        int(link.split("-")[1]) if nvlink else None,
        count,
    )


def pcie_peers(gpus: Iterable[Gpu | None]) -> frozenset[frozenset[str]] | None:
    """No pair where the vendor's driver offers no peer access over PCIe to any of the GPUs, else all."""
    known = [gpu for gpu in gpus if gpu is not None]
    return frozenset() if known and not any(gpu.pcie_peer_to_peer for gpu in known) else None


def _runs_at(slot: Slot, gb_per_second: float) -> bool:
    rates = [slot.raw_bytes_per_second / 1e9]
    if slot.generation == 2:  # hwloc 2 reckons with the line code of generation 3
        rates.append(0.61538 * slot.lanes)
    return any(abs(gb_per_second / rate - 1) < 0.005 for rate in rates)


NOT_JOINED = "N/A"


def bandwidth_matrix(graph: MachineGraph) -> list[list[float | None]]:
    """Bytes per second of a transfer that has the machine to itself; None on the diagonal and where
    nothing joins a pair."""
    return [[_bytes_per_second(graph, a, b) for b in graph.gpus] for a in graph.gpus]


def latency_matrix(graph: MachineGraph) -> list[list[float | None]]:
    """Seconds along the path; None on the diagonal and where nothing joins a pair."""
    return [[_latency_seconds(graph, a, b) for b in graph.gpus] for a in graph.gpus]


def class_matrix(graph: MachineGraph) -> list[list[str]]:
    """NVIDIA's classes, as `nvidia-smi topo -m` prints them."""
    return [[_class(graph, a, b) for b in graph.gpus] for a in graph.gpus]


def is_staged(graph: MachineGraph, a: str, b: str) -> bool:
    """Whether a message from a to b goes through host memory."""
    return a != b and not graph.offers_peer_to_peer(a, b)


def host_to_gpu_bytes_per_second(graph: MachineGraph, chosen: Sequence[str]) -> float:
    """What each of these GPUs gets when all read from their socket's memory at once."""
    paths = [graph.path(graph.socket_of(gpu), gpu) for gpu in chosen]
    loads = Counter((id(hop.wire), hop.source) for path in paths for hop in path)
    return min(
        hop.wire.bytes_per_second / loads[id(hop.wire), hop.source]
        for path in paths
        for hop in path
    )


def _bytes_per_second(graph: MachineGraph, a: str, b: str) -> float | None:
    share = STAGED_SHARE if is_staged(graph, a, b) else 1.0
    rates = [share * _hop_rate(graph, hop, a, b) for hop in _hops(graph, a, b)]
    return min(rates, default=None)


def _hop_rate(graph: MachineGraph, hop: Hop, a: str, b: str) -> float:
    """Of NVLink all links that the pair has: a path names one NVSwitch, traffic spreads over all."""
    if hop.wire.kind not in GPU_LINKS:
        return hop.wire.bytes_per_second
    return hop.wire.bytes_per_second / hop.wire.width * graph.gpu_links(a, b)


def _latency_seconds(graph: MachineGraph, a: str, b: str) -> float | None:
    hops = _hops(graph, a, b)
    return sum(hop.wire.latency_seconds for hop in hops) if hops else None


def _class(graph: MachineGraph, a: str, b: str) -> str:
    return graph.path_class(a, b) if a == b or _hops(graph, a, b) else NOT_JOINED


def _hops(graph: MachineGraph, a: str, b: str) -> tuple[Hop, ...]:
    if a == b:
        return ()
    try:
        return graph.transfer_path(a, b)
    except ValueError:  # nothing joins them: a machine that was only partly discovered
        return ()
