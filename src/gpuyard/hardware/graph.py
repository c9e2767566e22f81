"""The machine as a graph: sockets, host bridges, PCIe switches, GPUs, NICs, NVMe drives, and NVSwitches.

The wires between them have a rate per direction, taken from the catalog. A graph is an immutable value: presets,
readers, and discovery build it; predictions and drawings query it.
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
"""`fabric` is a direct GPU link of a vendor other than NVIDIA, e.g. AMD's Infinity Fabric."""
GPU_LINKS: frozenset[WireKind] = frozenset({"nvlink", "fabric"})
LINK_PREFIX: dict[WireKind, str] = {"nvlink": "NV", "fabric": "FL"}
NOT_CONNECTED = "N/A"
PathClass = str
"""A path class in NVIDIA's notation.

"X" is the device itself, "NV<n>" n NVLinks ("FL<n>" n links of another vendor), "PIX" one PCIe switch, "PXB" several,
"PHB" a host bridge, "NODE" two host bridges of one socket, "SYS" two sockets, and "N/A" no path.
"""


@dataclass(frozen=True)
class Device:
    """A node of the graph; `gpu` is the catalog id of a known GPU."""

    id: str
    kind: DeviceKind
    label: str = ""
    gpu: str | None = None
    cpu_affinity: str | None = None
    numa_node: int | None = None


@dataclass(frozen=True)
class Wire:
    """An edge of the graph; rate and latency are per direction, and both directions work at once."""

    a: str
    b: str
    kind: WireKind
    bytes_per_second: float
    latency_seconds: float
    generation: int | None = None
    width: int = 1  # PCIe lanes, NVLinks, or links between sockets

    def other_end(self, device: str) -> str:
        return self.b if device == self.a else self.a


@dataclass(frozen=True)
class Hop:
    """A wire crossed in one direction."""

    wire: Wire
    source: str

    @property
    def target(self) -> str:
        return self.wire.other_end(self.source)


# eq=False: graphs are compared by identity, which makes them cheap cache keys
@dataclass(frozen=True, eq=False)
class MachineGraph:
    """The graph of one machine; GPU 0 is the first GPU among its devices."""

    name: str
    devices: tuple[Device, ...]
    wires: tuple[Wire, ...]
    # pairs of GPU ids that have peer-to-peer access over PCIe; None: all pairs
    pcie_peers: frozenset[frozenset[str]] | None = None
    notes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        ids = {device.id for device in self.devices}
        if len(ids) != len(self.devices):
            raise ValueError(f"{self.name}: two devices have the same id")
        for wire in self.wires:
            if wire.a not in ids or wire.b not in ids:
                raise ValueError(
                    f"{self.name}: a wire connects {wire.a} and {wire.b}, which must both be devices"
                )

    def device(self, id: str) -> Device:
        try:
            return self._by_id[id]
        except KeyError:
            raise UnknownName("device", id, self._by_id) from None

    def devices_of_kind(self, kind: DeviceKind) -> tuple[Device, ...]:
        return tuple(device for device in self.devices if device.kind == kind)

    @cached_property
    def slot_generation(self) -> int:
        """The newest PCIe generation of its slots."""
        slots = [wire.generation for wire in self.wires if wire.kind == "pcie" and wire.generation]
        return min(max(slots, default=DEFAULT_SLOT.generation), _NEWEST_GENERATION)

    @property
    def socket_memory_bytes_per_second(self) -> float:
        """The memory rate of one socket: the usual one in the years of the machine's PCIe generation."""
        return links().get(_SOCKET_MEMORY[self.slot_generation]).effective_bytes_per_second

    @cached_property
    def gpus(self) -> tuple[str, ...]:
        """The ids of the GPUs, in order."""
        return tuple(device.id for device in self.devices_of_kind("gpu"))

    def has_peer_access(self, a: str, b: str) -> bool:
        """Return whether GPU a can write to GPU b's memory.

        GPUs with direct links always can; over PCIe it depends on the driver.
        """
        if self.gpu_links(a, b):
            return True
        return self.pcie_peers is None or frozenset((a, b)) in self.pcie_peers

    def gpu_links(self, a: str, b: str) -> int:
        """Count the NVLinks (or links of another vendor) between two GPUs, direct or through NVSwitches."""
        if a == b:
            return 0
        switched = self._switched_links
        return self._direct_links[a, b] or min(switched[a], switched[b])

    def path(self, a: str, b: str) -> tuple[Hop, ...]:
        """Return the path of traffic between two devices: GPU links if there are any, otherwise PCIe."""
        if a == b:
            return ()
        return self._gpu_link_path(a, b) or self._host_path(a, b)

    def staged_path(self, a: str, b: str) -> tuple[Hop, ...]:
        """Return the path without peer access: into the memory of a's socket, and from there to b."""
        socket = self.find_socket(a)
        return self._host_path(a, socket) + self._host_path(socket, b)

    def transfer_path(self, a: str, b: str) -> tuple[Hop, ...]:
        """Return the path of a message from GPU a to GPU b, staged through the host if peer access is missing."""
        return self.path(a, b) if self.has_peer_access(a, b) else self.staged_path(a, b)

    def find_socket(self, device: str) -> str:
        """Return the socket nearest to a device."""
        paths = self._host_paths(device)
        sockets = [socket.id for socket in self.devices_of_kind("socket") if socket.id in paths]
        if not sockets:
            raise ValueError(f"{self.name}: {device} is not connected to a socket")
        return min(sockets, key=lambda socket: len(paths[socket]))

    def path_class(self, a: str, b: str) -> PathClass:
        """Return the class of the path between two devices."""
        if a == b:
            return "X"
        links = self.gpu_links(a, b) if self._both_gpus(a, b) else 0
        if not links:
            return self.pcie_class(a, b)
        return f"{LINK_PREFIX[self.path(a, b)[0].wire.kind]}{links}"

    def pcie_class(self, a: str, b: str) -> PathClass:
        """Return the class of the path over PCIe, ignoring GPU links."""
        if (a, b) not in self._class_cache:
            self._class_cache[a, b] = self._classify_pcie_path(a, b)
        return self._class_cache[a, b]

    def _classify_pcie_path(self, a: str, b: str) -> PathClass:
        if self.device(b).id not in self._host_paths(a):
            return NOT_CONNECTED  # e.g. two trays of a rack
        hops = self._host_path(a, b)
        kinds = [self.device(hop.target).kind for hop in hops[:-1]]
        if any(hop.wire.kind == "socket" for hop in hops):
            return "SYS"
        if kinds.count("host-bridge") > 1:
            return "NODE"
        if "host-bridge" in kinds or "socket" in kinds:
            return "PHB"
        return "PXB" if kinds.count("switch") > 1 else "PIX"

    def _both_gpus(self, a: str, b: str) -> bool:
        return self.device(a).kind == self.device(b).kind == "gpu"

    @cached_property
    def _direct_links(self) -> Counter[tuple[str, str]]:
        """The GPU links between two devices, by (a, b) and by (b, a)."""
        counts: Counter[tuple[str, str]] = Counter()
        for wire in self.wires:
            if wire.kind in GPU_LINKS:
                counts[wire.a, wire.b] += wire.width
                counts[wire.b, wire.a] += wire.width
        return counts

    @cached_property
    def _switched_links(self) -> Counter[str]:
        """The number of links from each device to NVSwitches."""
        counts: Counter[str] = Counter()
        for (a, b), count in self._direct_links.items():
            if self.device(b).kind == "nvswitch":
                counts[a] += count
        return counts

    def _gpu_link_path(self, a: str, b: str) -> tuple[Hop, ...]:
        """Return the path over GPU links, direct or through one NVSwitch; empty if there is none."""
        for wire in self._wires_by_device.get(a, ()):
            if wire.kind in GPU_LINKS and wire.other_end(a) == b:
                return (Hop(wire, a),)
        if not self._both_gpus(a, b) or not self.gpu_links(a, b):
            return ()
        up = next(
            wire
            for wire in self._wires_by_device[a]
            if self.device(wire.other_end(a)).kind == "nvswitch"
        )
        switch = up.other_end(a)
        down = next((w for w in self._wires_by_device[b] if w.other_end(b) == switch), None)
        return (Hop(up, a), Hop(down, switch)) if down else ()

    def _host_path(self, a: str, b: str) -> tuple[Hop, ...]:
        """Return the shortest path without GPU links."""
        paths = self._host_paths(a)
        if self.device(b).id not in paths:
            raise ValueError(f"{self.name}: {a} and {b} are not connected")
        return paths[b]

    def _host_paths(self, source: str) -> dict[str, tuple[Hop, ...]]:
        """Return the shortest paths without GPU links from a device to all others, by breadth-first search."""
        if source not in self._path_cache:
            paths: dict[str, tuple[Hop, ...]] = {self.device(source).id: ()}
            queue = deque(paths)
            while queue:
                device = queue.popleft()
                for wire in self._wires_by_device.get(device, ()):
                    neighbor = wire.other_end(device)
                    if wire.kind not in GPU_LINKS and neighbor not in paths:
                        paths[neighbor] = (*paths[device], Hop(wire, device))
                        queue.append(neighbor)
            self._path_cache[source] = paths
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
    def _wires_by_device(self) -> dict[str, tuple[Wire, ...]]:
        wires_by_device: dict[str, list[Wire]] = {}
        for wire in self.wires:
            wires_by_device.setdefault(wire.a, []).append(wire)
            wires_by_device.setdefault(wire.b, []).append(wire)
        return {device: tuple(wires) for device, wires in wires_by_device.items()}


# raw rate of one lane in one direction, in 10^9 bytes per second (PCI-SIG: 2.5, 5, 8, 16, and 32 GT/s minus the
# line code; generation 6 from the catalog)
_LANE_GB_PER_SECOND = {1: 0.25, 2: 0.5, 3: 0.9846, 4: 1.9692, 5: 3.9385, 6: 7.5625}
_NEWEST_GENERATION = max(_LANE_GB_PER_SECOND)
_LANE_COUNTS = (16, 8, 4, 2, 1)
# the usual link between sockets in the years of each PCIe generation
_SOCKET_LINKS = {
    1: "qpi-8.0",
    2: "qpi-8.0",
    3: "upi-10.4",
    4: "infinity-fabric-2",
    5: "upi-16",
    6: "upi-20",
}
# The usual memory of one socket in those years. Published training through host memory is no faster on hosts with PCIe 4,
# although most have eight channels, so these count like hosts with PCIe 3.
_SOCKET_MEMORY = {
    1: "ddr4-2400-4ch",
    2: "ddr4-2400-4ch",
    3: "ddr4-2666-6ch",
    4: "ddr4-2666-6ch",
    5: "ddr5-4800-8ch",
    6: "ddr5-4800-12ch",
}
_LAST_QPI_YEAR = 2017  # GPUs up to this year went into Xeon E5 machines, whose sockets QPI connects


@dataclass(frozen=True)
class Slot:
    """A PCIe slot: generation and number of lanes."""

    generation: int
    lanes: int

    @property
    def raw_bytes_per_second(self) -> float:
        return _LANE_GB_PER_SECOND[min(self.generation, _NEWEST_GENERATION)] * self.lanes * 1e9

    def __str__(self) -> str:
        return f"PCIe {self.generation}.0 x{self.lanes}"


DEFAULT_SLOT = Slot(3, 16)
UNKNOWN_SLOT_NOTE = "the PCIe generation of the slots is unknown: PCIe 3.0 x16 is assumed; name the GPU to change it"


def get_gpu_slot(gpu: Gpu | None) -> Slot:
    """Return the slot that a GPU is built for."""
    return Slot(gpu.pcie_generation, gpu.pcie_lanes) if gpu else DEFAULT_SLOT


def find_slot_by_rate(gb_per_second: float) -> Slot | None:
    """Return the slot with this raw rate, as hwloc reports it; None if no slot matches.

    An x16 slot of one generation is as fast as an x8 slot of the next: the widest match wins.
    """
    slots = (
        Slot(generation, lanes) for lanes in _LANE_COUNTS for generation in _LANE_GB_PER_SECOND
    )
    return next((slot for slot in slots if _matches_rate(slot, gb_per_second)), None)


def create_pcie_wire(a: str, b: str, slot: Slot) -> Wire:
    """Create a PCIe link at the catalog's effective rate, or at the share of it that PCIe 3.0 x16 reaches."""
    name = f"pcie-{slot.generation}-x{slot.lanes}"
    reference = links().get("pcie-3-x16")
    if name in links():
        rate = links().get(name).effective_bytes_per_second
    else:
        rate = slot.raw_bytes_per_second * reference.effective_bytes_per_second
        rate /= reference.raw_bytes_per_second
    return Wire(a, b, "pcie", rate, reference.latency_seconds / 2, slot.generation, slot.lanes)


def create_internal_wire(a: str, b: str, slot: Slot) -> Wire:
    """Create a wire inside a CPU; at the rate of sixteen slots, it never limits."""
    return Wire(a, b, "internal", 16 * create_pcie_wire(a, b, slot).bytes_per_second, 0.0)


def create_socket_wire(
    a: str, b: str, slot: Slot, gpu: Gpu | None = None, name: str | None = None
) -> Wire:
    """Create a link between sockets: the catalog link `name`, or the usual one of the GPU's years."""
    old = gpu is not None and gpu.pcie_generation == 3 and gpu.released <= _LAST_QPI_YEAR
    default = "qpi-9.6" if old else _SOCKET_LINKS[min(slot.generation, _NEWEST_GENERATION)]
    link = links().get(name or default)
    return Wire(a, b, "socket", link.effective_bytes_per_second, link.latency_seconds)


def create_same_socket_wire(a: str, b: str, slot: Slot) -> Wire:
    """Create a wire between two NUMA nodes of one socket: NVIDIA's class is SYS, but it is as fast as the CPU."""
    return Wire(a, b, "socket", create_internal_wire(a, b, slot).bytes_per_second, 0.0)


def create_gpu_link_wire(a: str, b: str, link: str, count: int) -> Wire:
    """Create a bundle of GPU links; `link` is a catalog id, e.g. nvlink-3-ga10x."""
    entry = links().get(link)
    nvlink = entry.kind == "nvlink"
    return Wire(
        a,
        b,
        "nvlink" if nvlink else "fabric",
        count * entry.effective_bytes_per_second,
        entry.latency_seconds,
        int(link.split("-")[1]) if nvlink else None,
        count,
    )


def find_pcie_peers(models: Iterable[Gpu | None]) -> frozenset[frozenset[str]] | None:
    """Return no pair if none of the known models has peer access over PCIe; otherwise None, i.e. all pairs."""
    known_models = [gpu for gpu in models if gpu is not None]
    has_access = not known_models or any(gpu.pcie_peer_to_peer for gpu in known_models)
    return None if has_access else frozenset()


def _matches_rate(slot: Slot, gb_per_second: float) -> bool:
    rates = [slot.raw_bytes_per_second / 1e9]
    if slot.generation == 2:  # hwloc 2 calculates with the line code of generation 3
        rates.append(0.61538 * slot.lanes)
    return any(abs(gb_per_second / rate - 1) < 0.005 for rate in rates)
