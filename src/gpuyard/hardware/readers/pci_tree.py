"""Build a machine graph from a PCI tree that was read from hwloc or sysfs."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from gpuyard.catalog import Gpu, gpus
from gpuyard.hardware.graph import (
    UNKNOWN_SLOT_NOTE,
    Device,
    DeviceKind,
    MachineGraph,
    Slot,
    Wire,
    create_internal_wire,
    create_pcie_wire,
    create_same_socket_wire,
    create_socket_wire,
    find_pcie_peers,
    get_gpu_slot,
)
from gpuyard.hardware.product_names import find_catalog_gpu

NVIDIA, AMD = 0x10DE, 0x1002
# VGA, 3D, and other display controllers; AMD's Instinct GPUs are processing accelerators
_GPU_CLASSES = {NVIDIA: {0x0300, 0x0302}, AMD: {0x0300, 0x0302, 0x0380, 0x1200}}


@dataclass(frozen=True)
class PciNode:
    """A PCI function, or a bridge with the devices below it."""

    address: str  # 0000:06:00.0
    class_code: int = 0x0604
    vendor: int = 0
    names: tuple[str, ...] = ()  # the system's names: mlx5_0, nvme0n1
    product: str = ""
    slot: Slot | None = None
    children: tuple["PciNode", ...] = ()

    @property
    def is_bridge(self) -> bool:
        return self.class_code == 0x0604


@dataclass(frozen=True)
class NumaNode:
    """CPUs with local memory and host bridges; `package` is the number of their chip."""

    number: int
    package: int
    cpus: str | None = None
    host_bridges: tuple[PciNode, ...] = ()


@dataclass
class PciGraphBuilder:
    """Builds a graph from NUMA nodes; GPUs are numbered by bus address, or in the given order."""

    name: str
    nodes: Sequence[NumaNode]
    gpu: Gpu | None = None
    gpu_order: Sequence[str] = ()  # bus addresses
    products: dict[str, str] = field(default_factory=dict)  # by bus address
    notes: list[str] = field(default_factory=list)
    wires: list[Wire] = field(default_factory=list)
    ids: dict[str, str] = field(default_factory=dict)  # by bus address
    _upper: list[Device] = field(default_factory=list)  # sockets, host bridges, and switches
    _leaves: dict[str, Device] = field(default_factory=dict)
    _kinds: dict[str, DeviceKind] = field(default_factory=dict)

    def build(self) -> "PciGraphBuilder":
        """Add the devices and wires of all NUMA nodes."""
        roots = [bridge for node in self.nodes for bridge in node.host_bridges]
        self._assign_ids([leaf for root in roots for leaf in _leaves(root)])
        model = self._find_model(roots)
        for node in self.nodes:
            self._add_node(node, get_gpu_slot(model))
        for a, b in combinations(self.nodes, 2):
            ends = f"CPU{a.number}", f"CPU{b.number}"
            self.wires.append(
                create_same_socket_wire(*ends, get_gpu_slot(model))
                if a.package == b.package
                else create_socket_wire(*ends, get_gpu_slot(model), model)
            )
        return self

    def _find_model(self, roots: list[PciNode]) -> Gpu | None:
        """Return the first GPU model that is in the catalog."""
        if self.gpu:
            return self.gpu
        leaves = [leaf for root in roots for leaf in _leaves(root) if _classify(leaf) == "gpu"]
        products = (self.products.get(leaf.address) or leaf.product for leaf in leaves)
        return next((model for product in products if (model := find_catalog_gpu(product))), None)

    def graph(
        self, peers: frozenset[frozenset[str]] | None = None, extra: Iterable[Device] = ()
    ) -> MachineGraph:
        """Return the graph; by default, the GPU models determine which GPUs have peer access."""
        leaves = tuple(self._leaves[id] for id in self.ids.values())
        models = [gpus().get(leaf.gpu) for leaf in leaves if leaf.gpu]
        return MachineGraph(
            self.name,
            (*self._upper, *leaves, *extra),
            tuple(self.wires),
            find_pcie_peers(models) if peers is None else peers,
            tuple(dict.fromkeys(self.notes)),
        )

    def _assign_ids(self, leaves: list[PciNode]) -> None:
        """Number the GPUs, NICs, and drives."""
        by_address = sorted(leaves, key=lambda leaf: _parse_address(leaf.address))
        gpu_leaves = [leaf for leaf in by_address if _classify(leaf) == "gpu"]
        if {NVIDIA, AMD} <= {leaf.vendor for leaf in gpu_leaves}:
            self.notes.append("AMD GPUs are left out because there are NVIDIA GPUs")
            gpu_leaves = [leaf for leaf in gpu_leaves if leaf.vendor == NVIDIA]
        if self.gpu_order:
            rank = {address: i for i, address in enumerate(self.gpu_order)}
            gpu_leaves.sort(key=lambda leaf: rank.get(leaf.address, len(rank)))
        nics = [leaf for leaf in by_address if _classify(leaf) == "nic"]
        drives = [leaf for leaf in by_address if _classify(leaf) == "nvme"]
        groups: tuple[tuple[str, DeviceKind, list[PciNode]], ...] = (
            ("GPU", "gpu", gpu_leaves),
            ("NIC", "nic", nics),
            ("NVMe", "nvme", drives),
        )
        for prefix, kind, group in groups:
            for i, leaf in enumerate(group):
                self.ids[leaf.address] = f"{prefix}{i}"
                self._kinds[leaf.address] = kind

    def _add_node(self, node: NumaNode, slot: Slot) -> None:
        socket = f"CPU{node.number}"
        self._upper.append(
            Device(
                socket,
                "socket",
                f"CPU {node.number}",
                cpu_affinity=node.cpus,
                numa_node=node.number,
            )
        )
        for root in node.host_bridges:
            if not self._has_devices(root):
                continue
            bridge = f"HB{sum(d.kind == 'host-bridge' for d in self._upper)}"
            self._upper.append(
                Device(bridge, "host-bridge", f"host bridge {root.address}", numa_node=node.number)
            )
            self.wires.append(create_internal_wire(socket, bridge, slot))
            for child in root.children:
                self._add_port(child, bridge, node, above_switch=False)

    def _add_port(self, port: PciNode, parent: str, node: NumaNode, *, above_switch: bool) -> None:
        """Add the devices behind a root port or a switch's downstream port, which are one link away."""
        if not self._has_devices(port):
            return
        if not port.is_bridge:
            self._add_leaf(port, parent, node)
            return
        several = sum(map(self._has_devices, port.children)) > 1
        if several and not above_switch:
            parent = self._add_switch(port, parent, "card with several functions")
        for child in port.children:
            if child.is_bridge:
                self._add_upstream(child, parent, node)
            elif child.address in self.ids:
                self._add_leaf(child, parent, node)

    def _has_devices(self, node: PciNode) -> bool:
        """Return whether a GPU, NIC, or drive is at or below a node."""
        return any(leaf.address in self.ids for leaf in _leaves(node))

    def _add_upstream(self, upstream: PciNode, parent: str, node: NumaNode) -> None:
        """Add a switch: a bridge behind a port is its upstream port, and the bridges below are its downstream ports."""
        if not self._has_devices(upstream):
            return
        chip = re.search(r"PEX ?\w+|[A-Z]+ Switch", upstream.product)
        switch = self._add_switch(upstream, parent, chip[0] if chip else "PCIe switch")
        for child in upstream.children:
            self._add_port(child, switch, node, above_switch=True)

    def _add_switch(self, upstream: PciNode, parent: str, label: str) -> str:
        id = f"SW{sum(device.kind == 'switch' for device in self._upper)}"
        self._upper.append(Device(id, "switch", f"{label} {upstream.address}"))
        slot = self._resolve_slot(id, upstream.slot, self.gpu)
        self.wires.append(create_pcie_wire(parent, id, slot))
        return id

    def _add_leaf(self, leaf: PciNode, parent: str, node: NumaNode) -> None:
        id, kind = self.ids[leaf.address], self._kinds[leaf.address]
        product = self.products.get(leaf.address) or leaf.product
        gpu = (self.gpu or find_catalog_gpu(product)) if kind == "gpu" else None
        label = product if kind == "gpu" else "/".join(leaf.names) or product
        self._leaves[id] = Device(
            id, kind, label or leaf.address, gpu.id if gpu else None, node.cpus, node.number
        )
        self.wires.append(create_pcie_wire(parent, id, self._resolve_slot(id, leaf.slot, gpu)))

    def _resolve_slot(self, id: str, slot: Slot | None, gpu: Gpu | None) -> Slot:
        """Return the slot under load. An idle link drops to generation 1; no GPU or switch here is that old."""
        default = get_gpu_slot(gpu)
        if slot is None:
            if gpu is None and id.startswith("GPU"):
                self.notes.append(UNKNOWN_SLOT_NOTE)
            return default
        if slot.generation == 1 and id.startswith(("GPU", "SW")):
            loaded = replace(slot, generation=default.generation)
            self.notes.append(
                f"the link of {id} was idle at {slot} when it was read; {loaded} is assumed"
            )
            return loaded
        return slot


def _classify(leaf: PciNode) -> DeviceKind | None:
    if leaf.class_code in _GPU_CLASSES.get(leaf.vendor, ()):
        return "gpu"
    wireless = any(name.startswith("wl") for name in leaf.names)
    if leaf.class_code >> 8 == 0x02 and not wireless:
        return "nic"
    return "nvme" if leaf.class_code == 0x0108 else None


def _leaves(node: PciNode) -> Iterator[PciNode]:
    for child in node.children:
        yield from _leaves(child)
    if not node.children and not node.is_bridge and _classify(node) is not None:
        yield node


def _parse_address(address: str) -> tuple[int, ...]:
    head, _, function = address.rpartition(".")
    return (*(int(part, 16) for part in head.split(":")), int(function, 16))
