"""Reconstruct a machine graph from the path classes of `nvidia-smi topo -m`.

In a tree, the distances between devices are an ultrametric: among any three devices, the two largest are equal.
NVLink hides the PCIe distance of a pair; an upper bound follows from the other pairs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
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
    create_gpu_link_wire,
    create_internal_wire,
    create_pcie_wire,
    create_socket_wire,
    find_pcie_peers,
    get_gpu_slot,
)
from gpuyard.hardware.readers.matrices import TopoMatrix, is_gpu

LEVELS = ("PIX", "PXB", "PHB", "NODE", "SYS")  # near to far
_UNKNOWN = len(LEVELS)

Pair = tuple[str, str]
Group = tuple[str, ...]
Square = npt.NDArray[np.int8]


class DistanceBounds:
    """Upper bounds on the distance of every pair, given the pairs whose distance is known."""

    def __init__(self, devices: Sequence[str], known: Mapping[Pair, int]) -> None:
        self.devices = tuple(devices)
        self._index = {device: i for i, device in enumerate(self.devices)}
        self._known = np.full((len(self.devices),) * 2, _UNKNOWN, dtype=np.int8)
        for (a, b), level in known.items():
            self._known[self._index[a], self._index[b]] = level
        bounds = np.minimum(self._known, self._known.T)
        np.fill_diagonal(bounds, 0)
        for via in range(len(self.devices)):  # d(a, b) <= max(d(a, via), d(via, b))
            bounds = np.minimum(bounds, np.maximum.outer(bounds[:, via], bounds[via]))
        self._bounds: Square = bounds

    def get(self, a: str, b: str) -> int:
        return int(self._bounds[self._index[a], self._index[b]])

    def tighten(self, a: str, b: str, level: int) -> int:
        """Lower the bound of a hidden pair to this level, or as far as the known pairs allow; return the new bound."""
        is_known = self._known < _UNKNOWN
        while level < self.get(a, b):
            tighter = self._tighten_all(a, b, level)
            if (tighter[is_known] == self._bounds[is_known]).all():
                self._bounds = tighter
                break
            level += 1
        return self.get(a, b)

    def levels(self) -> dict[Pair, int]:
        """Return the level of every pair: the known one, or its bound."""
        bounds = np.minimum(self._bounds, _UNKNOWN - 1)
        levels = np.where(self._known < _UNKNOWN, self._known, bounds).tolist()
        return {
            (a, b): levels[i][j]
            for i, a in enumerate(self.devices)
            for j, b in enumerate(self.devices)
            if i != j
        }

    def _tighten_all(self, a: str, b: str, level: int) -> Square:
        """Return the bounds of all pairs if the distance of a and b is at most this level."""
        to_a, to_b = self._bounds[:, self._index[a]], self._bounds[:, self._index[b]]
        through = np.maximum(np.maximum.outer(to_a, to_b), np.int8(level))
        return np.minimum(self._bounds, np.minimum(through, through.T))


def group_devices(devices: Sequence[str], levels: Mapping[Pair, int], level: int) -> list[Group]:
    """Cluster the devices that are at most this level apart; if pairs disagree, the majority decides.

    Groups of a lower level always stay together.
    """
    count = len(devices)
    distances = np.array([[levels.get((a, b), 0) for b in devices] for a in devices])
    distances = distances.reshape(count, count)
    members = np.eye(count, dtype=np.int64)  # one row per group, one column per device
    for step in range(level + 1):
        near = (distances <= step).astype(np.int64)
        while len(members) > 1:
            sizes = members.sum(axis=1)
            agreement = np.triu(members @ near @ members.T / np.outer(sizes, sizes), k=1)
            a, b = divmod(int(np.argmax(agreement)), len(members))
            if agreement[a, b] <= 0.5:
                break
            members[a] += members[b]
            members = np.delete(members, b, axis=0)
    return [
        tuple(device for device, inside in zip(devices, row, strict=True) if inside)
        for row in members
    ]


_PIX, _PXB, _PHB, _NODE, _SYS = range(len(LEVELS))
_MAX_LINKS = 18  # NVLinks of one Hopper or Blackwell GPU


def graph_from_matrix(matrix: TopoMatrix, gpu: str | None = None) -> MachineGraph:
    """Build a machine with the path classes of the matrix; `gpu` is the catalog id of its GPUs.

    The notes list assumptions, and the first pair whose class differs if no tree has these classes.
    """
    model = gpus().get(gpu) if gpu else None
    notes: list[str] = [] if model else [UNKNOWN_SLOT_NOTE]
    levels = _infer_levels(matrix, notes)
    tree = _Tree(matrix, levels, model)
    nvlinks, nvswitch = _create_nvlinks(matrix, model, notes)
    graph = MachineGraph(
        matrix.source,
        (*tree.upper, *tree.leaves, *nvswitch),
        (*tree.wires, *nvlinks),
        find_pcie_peers([model]),
    )
    notes += _describe_sockets(matrix, tree) + _describe_differences(matrix, graph)
    return replace(graph, notes=tuple(notes))


def normalize_class(path_class: str) -> str:
    """Return the current name of a class: older drivers print SOC for SYS."""
    return "SYS" if path_class == "SOC" else path_class


def _infer_levels(matrix: TopoMatrix, notes: list[str]) -> dict[Pair, int]:
    """Return the PCIe distance of all pairs, inferring those whose class shows NVLinks instead."""
    known_levels = {
        pair: LEVELS.index(normalize_class(path_class))
        for pair, path_class in matrix.classes.items()
        if normalize_class(path_class) in LEVELS
    }
    bounds = DistanceBounds(matrix.devices, known_levels)
    inferred: list[str] = []
    for a, b in combinations(matrix.devices, 2):
        if (a, b) in known_levels:
            continue
        guess = _PHB if _have_same_cpus(matrix, a, b) else _SYS
        if guess < bounds.get(a, b):
            inferred.append(f"{a}-{b} {LEVELS[bounds.tighten(a, b, guess)]}")
    if inferred:
        notes.append(
            f"NVLink hides the PCIe path of {len(inferred)} pairs; inferred from CPU affinity and NICs: "
            f"{', '.join(inferred[:4])}{', …' if len(inferred) > 4 else ''}"
        )
    return bounds.levels()


def _have_same_cpus(matrix: TopoMatrix, a: str, b: str) -> bool:
    """Return whether two GPUs have the same affinity; without affinity, assume one CPU."""
    for affinity in (matrix.numa_affinity, matrix.cpu_affinity):
        if a in affinity and b in affinity:
            return affinity[a] == affinity[b]
    return True


class _Tree:
    """The tree of sockets, host bridges, and switches above the devices of a matrix."""

    def __init__(self, matrix: TopoMatrix, levels: dict[Pair, int], model: Gpu | None) -> None:
        self.upper: list[Device] = []
        self.wires: list[Wire] = []
        self._matrix, self._levels, self._model = matrix, levels, model
        self._slot = get_gpu_slot(model)
        for members in group_devices(matrix.devices, levels, _NODE):
            self._add_socket(members)
        for a, b in combinations([d.id for d in self.upper if d.kind == "socket"], 2):
            self.wires.append(create_socket_wire(a, b, self._slot, model))
        self.leaves = [self._create_leaf(device) for device in matrix.devices]

    def _add_socket(self, members: Group) -> None:
        socket = self._add_device("socket", "CPU", "CPU", members)
        for bridge_members in group_devices(members, self._levels, _PHB):
            bridge = self._add_device("host-bridge", "HB", "host bridge", bridge_members)
            self.wires.append(create_internal_wire(socket, bridge, self._slot))
            for switch_members in group_devices(bridge_members, self._levels, _PXB):
                self._add_switches(switch_members, bridge)

    def _add_switches(self, members: Group, bridge: str) -> None:
        """Add the switches between devices that reach each other without a host bridge."""
        groups = group_devices(members, self._levels, _PIX)
        top = bridge
        if len(groups) > 1:
            top = self._add_switch(members, bridge)
        for group in groups:
            parent = self._add_switch(group, top) if len(group) > 1 or len(groups) > 1 else top
            for device in group:
                self.wires.append(create_pcie_wire(parent, device, self._slot))

    def _add_switch(self, members: Group, parent: str) -> str:
        only_nics = not any(is_gpu(device) for device in members)
        label = "switch or card with several ports" if only_nics else "PCIe switch"
        id = self._add_device("switch", "SW", label, ())
        self.wires.append(create_pcie_wire(parent, id, Slot(self._slot.generation, 16)))
        return id

    def _add_device(self, kind: DeviceKind, prefix: str, label: str, members: Group) -> str:
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

    def _create_leaf(self, device: str) -> Device:
        numa = self._matrix.numa_affinity.get(device, "")
        affinity = (self._matrix.cpu_affinity.get(device), int(numa) if numa.isdigit() else None)
        if is_gpu(device):
            name, id = (self._model.name, self._model.id) if self._model else (device, None)
            return Device(device, "gpu", name, id, *affinity)
        return Device(device, "nic", self._matrix.nic_names.get(device, device), None, *affinity)


def _create_nvlinks(
    matrix: TopoMatrix, model: Gpu | None, notes: list[str]
) -> tuple[list[Wire], list[Device]]:
    """Create NVLinks between pairs, or to an NVSwitch if a GPU has too few links to reach all peers directly."""
    pairs = list(combinations(matrix.gpus, 2))
    counts = {
        (a, b): int(path_class[2:])
        for a, b in pairs
        if (path_class := matrix.classes[a, b]).startswith("NV")
    }
    if not counts:
        return [], []
    links_per_pair = max(counts.values())
    links_per_gpu = max(sum(n for pair, n in counts.items() if g in pair) for g in matrix.gpus)
    max_links = (model and model.nvlink_links) or _MAX_LINKS
    uniform = len(set(counts.values())) == 1 and len(counts) == len(pairs)
    switched = uniform and links_per_gpu > max_links
    link = model.nvlink_id if model else None
    if link is None:
        link = _guess_link(links_per_pair, links_per_pair if switched else links_per_gpu)
        notes.append(
            f"the NVLink generation is unknown: {link} is inferred from the number of links"
        )
    if switched:
        switch = Device("NVSW", "nvswitch", "NVSwitch")
        wires = [create_gpu_link_wire(g, "NVSW", link, links_per_pair) for g in matrix.gpus]
        return wires, [switch]
    if links_per_gpu > max_links:
        notes.append(
            f"GPUs show up to {links_per_gpu} NVLinks but have {max_links}: a switch must be between them; "
            "drawn as direct links"
        )
    return [create_gpu_link_wire(a, b, link, n) for (a, b), n in counts.items()], []


def _guess_link(links_per_pair: int, links_per_gpu: int) -> str:
    """Guess the generation from the links of a GPU: a P100 has 4 single links, a V100 6, an A100 12, an H100 18."""
    if links_per_gpu > 12:
        return "nvlink-4"
    if links_per_gpu > 6:
        return "nvlink-3"
    if links_per_pair == links_per_gpu == 4:
        return "nvlink-3-ga10x"  # a bridge between two RTX cards
    return "nvlink-1" if links_per_pair == 1 and links_per_gpu == 4 else "nvlink-2"


def _describe_sockets(matrix: TopoMatrix, tree: _Tree) -> list[str]:
    sockets = sum(device.kind == "socket" for device in tree.upper)
    nodes = set(matrix.numa_affinity.values())
    if not nodes or sockets <= len(nodes) or sockets <= 2:
        return []
    return [
        f"the GPUs list {len(nodes)} NUMA nodes, but their classes need {sockets}: each is drawn as a CPU"
    ]


def _describe_differences(matrix: TopoMatrix, graph: MachineGraph) -> list[str]:
    pairs = find_differences(matrix, graph)
    if not pairs:
        return []
    a, b = pairs[0]
    return [
        f"no PCIe tree has all these classes: {len(pairs)} pairs differ, first {a}-{b}, "
        f"{normalize_class(matrix.classes[a, b])} in the matrix but {graph.path_class(a, b)} as drawn"
    ]


def find_differences(matrix: TopoMatrix, graph: MachineGraph) -> list[Pair]:
    """Return the pairs whose class in the graph differs from the matrix."""
    return [
        (a, b)
        for a, b in combinations(matrix.devices, 2)
        if graph.path_class(a, b) != normalize_class(matrix.classes[a, b])
    ]
