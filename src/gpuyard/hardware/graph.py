"""The machine as a graph: sockets, host bridges, PCIe switches, GPUs, NICs, NVMe and NVSwitches, and the
wires between them, each with its rate in one direction, as the catalog has it.

Pure: a graph is a value; presets build it, discovery reads it, everything else asks it.
"""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from gpuyard.catalog import Gpu, links
from gpuyard.errors import UnknownName

DeviceKind = Literal["socket", "host-bridge", "switch", "gpu", "nic", "nvme", "nvswitch"]
WireKind = Literal["pcie", "nvlink", "fabric", "socket", "internal"]
"""`fabric`: what other makers join their GPUs with directly, as AMD's Infinity Fabric."""
GPU_LINKS: frozenset[WireKind] = frozenset({"nvlink", "fabric"})
LINK_PREFIX: dict[WireKind, str] = {"nvlink": "NV", "fabric": "FL"}
NOT_JOINED = "N/A"
PathClass = str
"""NVIDIA's: "X" itself, "NV<n>" n NVLinks ("FL<n>" n links of another maker), "PIX" one PCIe switch, "PXB" several, "PHB" a host bridge,
"NODE" two host bridges of one socket, "SYS" two sockets, "N/A" nothing."""


@dataclass(frozen=True)
class Device:
    """A node. `gpu` is a catalog id where it is known."""

    id: str
    kind: DeviceKind
    label: str = ""
    gpu: str | None = None
    cpu_affinity: str | None = None
    numa_node: int | None = None


@dataclass(frozen=True)
class Wire:
    """An edge; rate and latency are of one direction, both directions can run at once."""

    a: str
    b: str
    kind: WireKind
    bytes_per_second: float
    latency_seconds: float
    generation: int | None = None
    width: int = 1  # lanes of PCIe, links of NVLink, links between sockets

    def other(self, device: str) -> str:
        return self.b if device == self.a else self.a


@dataclass(frozen=True)
class Hop:
    """A wire taken in one direction."""

    wire: Wire
    source: str

    @property
    def target(self) -> str:
        return self.wire.other(self.source)


@dataclass(
    frozen=True, eq=False
)  # compared and hashed as the object that it is: answers are cached
class MachineGraph:
    """One machine. Devices keep their order: GPU 0 is the first."""

    name: str
    devices: tuple[Device, ...]
    wires: tuple[Wire, ...]
    # pairs of GPU ids whose driver offers peer-to-peer over PCIe; None: all pairs do
    pcie_peers: frozenset[frozenset[str]] | None = None
    notes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        known = {device.id for device in self.devices}
        if len(known) != len(self.devices):
            raise ValueError(f"{self.name}: two devices have the same id")
        for wire in self.wires:
            if wire.a not in known or wire.b not in known:
                raise ValueError(
                    f"{self.name}: a wire joins {wire.a} and {wire.b}, not both are there"
                )

    def device(self, id: str) -> Device:
        try:
            return self._by_id[id]
        except KeyError:
            raise UnknownName("device", id, self._by_id) from None

    def of_kind(self, kind: DeviceKind) -> tuple[Device, ...]:
        return tuple(device for device in self.devices if device.kind == kind)

    @cached_property
    def gpus(self) -> tuple[str, ...]:
        """Ids of the GPUs in order."""
        return tuple(device.id for device in self.of_kind("gpu"))

    def offers_peer_to_peer(self, a: str, b: str) -> bool:
        """Whether a can write into b's memory: over links of their own always, over PCIe if the driver lets it."""
        if self.gpu_links(a, b):
            return True
        return self.pcie_peers is None or frozenset((a, b)) in self.pcie_peers

    def gpu_links(self, a: str, b: str) -> int:
        """NVLinks (or links of another maker) that traffic between two GPUs can use at once, direct or through
        NVSwitches."""
        if a == b:
            return 0
        switched = self._switched_links
        return self._direct_links[a, b] or min(switched[a], switched[b])

    def path(self, a: str, b: str) -> tuple[Hop, ...]:
        """The way that traffic takes: the GPUs' own links where there are any, else PCIe and the sockets."""
        if a == b:
            return ()
        direct = self._direct_path(a, b)
        return direct or self._host_path(a, b)

    def staged_path(self, a: str, b: str) -> tuple[Hop, ...]:
        """Up into the memory of a's socket and from there down to b: what happens without peer access."""
        socket = self.socket_of(a)
        return self._host_path(a, socket) + self._host_path(socket, b)

    def transfer_path(self, a: str, b: str) -> tuple[Hop, ...]:
        """The path of a message from GPU a to GPU b as the driver allows it."""
        return self.path(a, b) if self.offers_peer_to_peer(a, b) else self.staged_path(a, b)

    def socket_of(self, device: str) -> str:
        """The socket that a device hangs under."""
        reached = self._host_paths(device)
        sockets = [socket.id for socket in self.of_kind("socket") if socket.id in reached]
        if not sockets:
            raise ValueError(f"{self.name}: nothing joins {device} and a socket")
        return min(sockets, key=lambda socket: len(reached[socket]))

    def path_class(self, a: str, b: str) -> PathClass:
        """NVIDIA's class of the path between two devices."""
        if a == b:
            return "X"
        links = self.gpu_links(a, b) if self._both_gpus(a, b) else 0
        if not links:
            return self.pcie_class(a, b)
        return f"{LINK_PREFIX[self.path(a, b)[0].wire.kind]}{links}"

    def pcie_class(self, a: str, b: str) -> PathClass:
        """The class of the path that leaves the GPUs' own links aside."""
        if (a, b) not in self._class_cache:
            self._class_cache[a, b] = self._pcie_class(a, b)
        return self._class_cache[a, b]

    def _pcie_class(self, a: str, b: str) -> PathClass:
        if self.device(b).id not in self._host_paths(a):
            return NOT_JOINED  # as between two trays of a rack
        hops = self._host_path(a, b)
        passed = [self.device(hop.target).kind for hop in hops[:-1]]
        if any(hop.wire.kind == "socket" for hop in hops):
            return "SYS"
        if passed.count("host-bridge") > 1:
            return "NODE"
        if "host-bridge" in passed or "socket" in passed:
            return "PHB"
        return "PXB" if passed.count("switch") > 1 else "PIX"

    def _both_gpus(self, a: str, b: str) -> bool:
        return self.device(a).kind == self.device(b).kind == "gpu"

    @cached_property
    def _direct_links(self) -> Counter[tuple[str, str]]:
        """GPUs' own links between two devices, in both directions."""
        found: Counter[tuple[str, str]] = Counter()
        for wire in self.wires:
            if wire.kind in GPU_LINKS:
                found[wire.a, wire.b] += wire.width
                found[wire.b, wire.a] += wire.width
        return found

    @cached_property
    def _switched_links(self) -> Counter[str]:
        """Links of each device to switches of the GPUs' own links."""
        found: Counter[str] = Counter()
        for (a, b), count in self._direct_links.items():
            if self.device(b).kind == "nvswitch":
                found[a] += count
        return found

    def _direct_path(self, a: str, b: str) -> tuple[Hop, ...]:
        for wire in self._wires_of.get(a, ()):
            if wire.kind in GPU_LINKS and wire.other(a) == b:
                return (Hop(wire, a),)
        if not self._both_gpus(a, b) or not self.gpu_links(a, b):
            return ()
        up = next(w for w in self._wires_of[a] if self.device(w.other(a)).kind == "nvswitch")
        switch = up.other(a)
        down = next((w for w in self._wires_of[b] if w.other(b) == switch), None)
        return (Hop(up, a), Hop(down, switch)) if down else ()

    def _host_path(self, a: str, b: str) -> tuple[Hop, ...]:
        """The shortest way that does not use the GPUs' own links."""
        found = self._host_paths(a)
        if self.device(b).id not in found:
            raise ValueError(f"{self.name}: nothing joins {a} and {b}")
        return found[b]

    def _host_paths(self, source: str) -> dict[str, tuple[Hop, ...]]:
        """From a device to all that it reaches, nearest first."""
        if source not in self._path_cache:
            found: dict[str, tuple[Hop, ...]] = {self.device(source).id: ()}
            waiting = deque(found)
            while waiting:
                here = waiting.popleft()
                for wire in self._wires_of.get(here, ()):
                    there = wire.other(here)
                    if wire.kind not in GPU_LINKS and there not in found:
                        found[there] = (*found[here], Hop(wire, here))
                        waiting.append(there)
            self._path_cache[source] = found
        return self._path_cache[source]

    @cached_property
    def _path_cache(self) -> dict[str, dict[str, tuple[Hop, ...]]]:
        return {}

    @cached_property
    def _class_cache(self) -> dict[tuple[str, str], PathClass]:
        return {}

    @cached_property
    def _by_id(self) -> dict[str, Device]:
        return {device.id: device for device in self.devices}

    @cached_property
    def _wires_of(self) -> dict[str, tuple[Wire, ...]]:
        touching: dict[str, list[Wire]] = {}
        for wire in self.wires:
            touching.setdefault(wire.a, []).append(wire)
            touching.setdefault(wire.b, []).append(wire)
        return {device: tuple(wires) for device, wires in touching.items()}


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
