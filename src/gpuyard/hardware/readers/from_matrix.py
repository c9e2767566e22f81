"""From the classes of `nvidia-smi topo -m` back to a machine that has them.

In a tree the nearness of three devices is an ultrametric: of the three classes the two farthest are equal.
NVLink hides a pair's class; what it can be at most follows from the other pairs.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt

from gpuyard.catalog import Gpu, gpus
from gpuyard.hardware.graph import (
    UNKNOWN_SLOT_NOTE,
    Device,
    DeviceKind,
    MachineGraph,
    Slot,
    Wire,
    gpu_link_wire,
    internal_wire,
    pcie_peers,
    pcie_wire,
    slot_of_gpu,
    socket_wire,
)
from gpuyard.hardware.readers.matrices import TopoMatrix, is_gpu

LEVELS = ("PIX", "PXB", "PHB", "NODE", "SYS")  # near to far
_UNKNOWN = len(LEVELS)

Pair = tuple[str, str]
Group = tuple[str, ...]
Square = npt.NDArray[np.int8]


class Nearness:
    """The farthest that every pair can be, given the pairs that are known."""

    def __init__(self, devices: Sequence[str], known: Mapping[Pair, int]) -> None:
        self.devices = tuple(devices)
        self._at = {device: i for i, device in enumerate(self.devices)}
        self._known = np.full((len(self.devices),) * 2, _UNKNOWN, dtype=np.int8)
        for (a, b), level in known.items():
            self._known[self._at[a], self._at[b]] = level
        most = np.minimum(self._known, self._known.T)
        np.fill_diagonal(most, 0)
        for between in range(len(self.devices)):  # whoever is near one is near the other
            most = np.minimum(most, np.maximum.outer(most[:, between], most[between]))
        self._most: Square = most

    def most(self, a: str, b: str) -> int:
        return int(self._most[self._at[a], self._at[b]])

    def suppose(self, a: str, b: str, level: int) -> int:
        """Take a hidden pair to be this near, or as near as the known pairs let it be; returns how near."""
        known = self._known < _UNKNOWN
        while level < self.most(a, b):
            closer = self._closer(a, b, level)
            if (closer[known] == self._most[known]).all():
                self._most = closer
                break
            level += 1
        return self.most(a, b)

    def levels(self) -> dict[Pair, int]:
        """Every pair: as it is known, else as far as it can be."""
        farthest = np.minimum(self._most, _UNKNOWN - 1)
        found = np.where(self._known < _UNKNOWN, self._known, farthest).tolist()
        return {
            (a, b): found[i][j]
            for i, a in enumerate(self.devices)
            for j, b in enumerate(self.devices)
            if i != j
        }

    def _closer(self, a: str, b: str, level: int) -> Square:
        """All pairs after a and b have been brought this near."""
        to_a, to_b = self._most[:, self._at[a]], self._most[:, self._at[b]]
        through = np.maximum(np.maximum.outer(to_a, to_b), np.int8(level))
        return np.minimum(self._most, np.minimum(through, through.T))


def group(devices: Sequence[str], levels: Mapping[Pair, int], level: int) -> list[Group]:
    """Devices in groups that are this near; where the pairs disagree, most of them decide.

    Groups of a nearer level are never cut apart.
    """
    count = len(devices)
    far = np.array([[levels.get((a, b), 0) for b in devices] for a in devices]).reshape(
        count, count
    )
    members = np.eye(count, dtype=np.int64)  # one row a group, one column a device
    for step in range(level + 1):
        near = (far <= step).astype(np.int64)
        while len(members) > 1:
            sizes = members.sum(axis=1)
            agreeing = np.triu(members @ near @ members.T / np.outer(sizes, sizes), k=1)
            a, b = divmod(int(np.argmax(agreeing)), len(members))
            if agreeing[a, b] <= 0.5:
                break
            members[a] += members[b]
            members = np.delete(members, b, axis=0)
    return [
        tuple(device for device, inside in zip(devices, row, strict=True) if inside)
        for row in members
    ]


_PIX, _PXB, _PHB, _NODE, _SYS = range(len(LEVELS))
_MOST_LINKS = 18  # of one GPU: Hopper and Blackwell


def graph_from_matrix(matrix: TopoMatrix, gpu: str | None = None) -> MachineGraph:
    """A machine whose path classes are those of the matrix; `gpu` is the catalog id of its GPUs.

    What the matrix leaves open, and the first pair that no tree can give, are in the notes.
    """
    model = gpus().get(gpu) if gpu else None
    notes: list[str] = [] if model else [UNKNOWN_SLOT_NOTE]
    levels = _levels(matrix, notes)
    tree = _Tree(matrix, levels, model)
    nvlinks, nvswitch = _nvlinks(matrix, model, notes)
    graph = MachineGraph(
        matrix.source,
        (*tree.upper, *tree.leaves, *nvswitch),
        (*tree.wires, *nvlinks),
        pcie_peers([model]),
    )
    notes += _sockets_note(matrix, tree) + _difference_note(matrix, graph)
    return MachineGraph(graph.name, graph.devices, graph.wires, graph.pcie_peers, tuple(notes))


def plain_class(printed: str) -> str:
    """NVIDIA's class in today's words: older drivers wrote SOC for SYS."""
    return "SYS" if printed == "SOC" else printed


def _levels(matrix: TopoMatrix, notes: list[str]) -> dict[Pair, int]:
    """How near all pairs are on PCIe; a pair with NVLink shows its links instead, so it is inferred."""
    known = {
        pair: LEVELS.index(plain_class(printed))
        for pair, printed in matrix.classes.items()
        if plain_class(printed) in LEVELS
    }
    nearness = Nearness(matrix.devices, known)
    supposed: list[str] = []
    for a, b in combinations(matrix.devices, 2):
        if (a, b) in known:
            continue
        guess = _PHB if _same_cpus(matrix, a, b) else _SYS
        if guess < nearness.most(a, b):
            supposed.append(f"{a}-{b} {LEVELS[nearness.suppose(a, b, guess)]}")
    if supposed:
        notes.append(
            f"NVLink hides the PCIe path of {len(supposed)} pairs; inferred from CPU affinity and NICs: "
            f"{', '.join(supposed[:4])}{', …' if len(supposed) > 4 else ''}"
        )
    return nearness.levels()


def _same_cpus(matrix: TopoMatrix, a: str, b: str) -> bool:
    """Whether two GPUs are near the same CPUs; without any affinity one CPU is the simplest."""
    for affinity in (matrix.numa_affinity, matrix.cpu_affinity):
        if a in affinity and b in affinity:
            return affinity[a] == affinity[b]
    return True


class _Tree:
    """Sockets, host bridges and switches above the devices of a matrix."""

    def __init__(self, matrix: TopoMatrix, levels: dict[Pair, int], model: Gpu | None) -> None:
        self.upper: list[Device] = []
        self.wires: list[Wire] = []
        self._matrix, self._levels, self._model = matrix, levels, model
        self._slot = slot_of_gpu(model)
        nodes = group(matrix.devices, levels, _NODE)
        for members in nodes:
            self._socket(members)
        for a, b in combinations([d.id for d in self.upper if d.kind == "socket"], 2):
            self.wires.append(socket_wire(a, b, self._slot, model))
        self.leaves = [self._leaf(device) for device in matrix.devices]

    def _socket(self, members: Group) -> None:
        socket = self._add("socket", "CPU", "CPU", members)
        for behind in group(members, self._levels, _PHB):
            bridge = self._add("host-bridge", "HB", "host bridge", behind)
            self.wires.append(internal_wire(socket, bridge, self._slot))
            for below in group(behind, self._levels, _PXB):
                self._switches(below, bridge)

    def _switches(self, below: Group, bridge: str) -> None:
        """Devices that reach each other without a host bridge: through one switch, or through several."""
        parts = group(below, self._levels, _PIX)
        top = bridge
        if len(parts) > 1:
            top = self._switch(below, bridge)
        for part in parts:
            parent = self._switch(part, top) if len(part) > 1 or len(parts) > 1 else top
            for device in part:
                self.wires.append(pcie_wire(parent, device, self._slot))

    def _switch(self, members: Group, parent: str) -> str:
        ports = not any(is_gpu(device) for device in members)
        id = self._add(
            "switch", "SW", "switch or card with several ports" if ports else "PCIe switch", ()
        )
        self.wires.append(pcie_wire(parent, id, Slot(self._slot.generation, 16)))
        return id

    def _add(self, kind: DeviceKind, prefix: str, label: str, members: Group) -> str:
        count = sum(device.kind == kind for device in self.upper)
        numa = {n for m in members if (n := self._matrix.numa_affinity.get(m, "")).isdigit()}
        cpus = {c for m in members if (c := self._matrix.cpu_affinity.get(m))}
        device = Device(
            f"{prefix}{count}",
            kind,
            f"{label} {count}" if kind != "switch" else label,
            cpu_affinity=cpus.pop() if len(cpus) == 1 and kind == "socket" else None,
            numa_node=int(numa.pop()) if len(numa) == 1 else None,
        )
        self.upper.append(device)
        return device.id

    def _leaf(self, device: str) -> Device:
        numa = self._matrix.numa_affinity.get(device, "")
        common = (self._matrix.cpu_affinity.get(device), int(numa) if numa.isdigit() else None)
        if is_gpu(device):
            name, id = (self._model.name, self._model.id) if self._model else (device, None)
            return Device(device, "gpu", name, id, *common)
        return Device(device, "nic", self._matrix.nic_names.get(device, device), None, *common)


def _nvlinks(
    matrix: TopoMatrix, model: Gpu | None, notes: list[str]
) -> tuple[list[Wire], list[Device]]:
    """NVLinks between pairs, or to an NVSwitch where no GPU has links enough to reach all its peers."""
    counts = {
        (a, b): int(printed[2:])
        for a, b in combinations(matrix.gpus, 2)
        if (printed := matrix.classes[a, b]).startswith("NV")
    }
    if not counts:
        return [], []
    each = {g: sum(n for pair, n in counts.items() if g in pair) for g in matrix.gpus}
    most = (model and model.nvlink_links) or _MOST_LINKS
    same = len(set(counts.values())) == 1 and len(counts) == len(list(combinations(matrix.gpus, 2)))
    count = max(counts.values())
    switched = same and max(each.values()) > most
    link = model.nvlink_id if model else None
    if link is None:
        link = _guess_link(count, count if switched else max(each.values()))
        notes.append(
            f"the NVLink generation is unknown: {link} is inferred from the number of links"
        )
    if switched:
        switch = Device("NVSW", "nvswitch", "NVSwitch")
        return [gpu_link_wire(g, "NVSW", link, count) for g in matrix.gpus], [switch]
    if max(each.values()) > most:
        notes.append(
            f"GPUs show up to {max(each.values())} NVLinks but have {most}: a switch must be between them; "
            "drawn as direct links"
        )
    return [gpu_link_wire(a, b, link, n) for (a, b), n in counts.items()], []


def _guess_link(of_pair: int, of_gpu: int) -> str:
    """The generation by how many links a GPU has: P100 4 single ones, V100 6, A100 12, H100 18."""
    if of_gpu > 12:
        return "nvlink-4"
    if of_gpu > 6:
        return "nvlink-3"
    if of_pair == of_gpu == 4:
        return "nvlink-3-ga10x"  # a bridge between two RTX cards
    return "nvlink-1" if of_pair == 1 and of_gpu == 4 else "nvlink-2"


def _sockets_note(matrix: TopoMatrix, tree: _Tree) -> list[str]:
    sockets = sum(device.kind == "socket" for device in tree.upper)
    nodes = set(matrix.numa_affinity.values())
    if not nodes or sockets <= len(nodes) or sockets <= 2:
        return []
    return [
        f"the GPUs list {len(nodes)} NUMA nodes, but their classes need {sockets}: each is drawn as a CPU"
    ]


def _difference_note(matrix: TopoMatrix, graph: MachineGraph) -> list[str]:
    wrong = differences(matrix, graph)
    if not wrong:
        return []
    a, b = wrong[0]
    return [
        f"no PCIe tree has all these classes: {len(wrong)} pairs differ, first {a}-{b}, "
        f"{plain_class(matrix.classes[a, b])} in the matrix but {graph.path_class(a, b)} as drawn"
    ]


def differences(matrix: TopoMatrix, graph: MachineGraph) -> list[Pair]:
    """Pairs whose class the graph does not give."""
    return [
        (a, b)
        for a, b in combinations(matrix.devices, 2)
        if graph.path_class(a, b) != plain_class(matrix.classes[a, b])
    ]
