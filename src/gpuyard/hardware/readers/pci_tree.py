"""A machine's PCI tree, whoever read it (hwloc, sysfs), as sockets, host bridges, switches and devices."""

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
    internal_wire,
    pcie_peers,
    pcie_wire,
    same_socket_wire,
    slot_of_gpu,
    socket_wire,
)
from gpuyard.hardware.product_names import catalog_gpu

NVIDIA, AMD = 0x10DE, 0x1002
# VGA, 3D and other display controllers; AMD's Instinct GPUs call themselves processing accelerators
_GPU_CLASSES = {NVIDIA: {0x0300, 0x0302}, AMD: {0x0300, 0x0302, 0x0380, 0x1200}}


@dataclass(frozen=True)
class PciNode:
    """A PCI function, or a bridge with what hangs below it."""

    address: str  # 0000:06:00.0
    class_code: int = 0x0604
    vendor: int = 0
    names: tuple[str, ...] = ()  # what the system calls it: mlx5_0, nvme0n1
    product: str = ""
    slot: Slot | None = None
    children: tuple["PciNode", ...] = ()

    @property
    def is_bridge(self) -> bool:
        return self.class_code == 0x0604


@dataclass(frozen=True)
class NumaNode:
    """CPUs with memory and host bridges of their own; `package` is the chip that it is a part of."""

    number: int
    package: int
    cpus: str | None = None
    host_bridges: tuple[PciNode, ...] = ()


@dataclass
class PciMachine:
    """Builds a graph of NUMA nodes; GPUs get their numbers by bus address, or by the order given."""

    name: str
    nodes: Sequence[NumaNode]
    gpu: Gpu | None = None
    order: Sequence[str] = ()
    products: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    wires: list[Wire] = field(default_factory=list)
    numbers: dict[str, str] = field(default_factory=dict)  # ids by bus address
    _upper: list[Device] = field(default_factory=list)
    _leaves: dict[str, Device] = field(default_factory=dict)
    _kinds: dict[str, DeviceKind] = field(default_factory=dict)

    def build(self) -> "PciMachine":
        roots = [bridge for node in self.nodes for bridge in node.host_bridges]
        self._number([leaf for root in roots for leaf in _leaves(root)])
        model = self._first_model(roots)
        for node in self.nodes:
            self._add_node(node, slot_of_gpu(model))
        for a, b in combinations(self.nodes, 2):
            ends = f"CPU{a.number}", f"CPU{b.number}"
            self.wires.append(
                same_socket_wire(*ends, slot_of_gpu(model))
                if a.package == b.package
                else socket_wire(*ends, slot_of_gpu(model), model)
            )
        return self

    def _first_model(self, roots: list[PciNode]) -> Gpu | None:
        if self.gpu:
            return self.gpu
        leaves = [leaf for root in roots for leaf in _leaves(root) if _kind(leaf) == "gpu"]
        found = (catalog_gpu(self.products.get(leaf.address) or leaf.product) for leaf in leaves)
        return next((model for model in found if model), None)

    def graph(
        self, peers: frozenset[frozenset[str]] | None = None, extra: Iterable[Device] = ()
    ) -> MachineGraph:
        leaves = tuple(self._leaves[id] for id in self.numbers.values())
        known = [gpus().get(leaf.gpu) for leaf in leaves if leaf.gpu]
        return MachineGraph(
            self.name,
            (*self._upper, *leaves, *extra),
            tuple(self.wires),
            pcie_peers(known) if peers is None else peers,
            tuple(dict.fromkeys(self.notes)),
        )

    def _number(self, leaves: list[PciNode]) -> None:
        by_address = sorted(leaves, key=lambda leaf: _address_key(leaf.address))
        found = [leaf for leaf in by_address if _kind(leaf) == "gpu"]
        if any(leaf.vendor == NVIDIA for leaf in found) and any(
            leaf.vendor == AMD for leaf in found
        ):
            self.notes.append("AMD graphics are left out where there are NVIDIA GPUs")
            found = [leaf for leaf in found if leaf.vendor == NVIDIA]
        if self.order:
            place = {address: i for i, address in enumerate(self.order)}
            found.sort(key=lambda leaf: place.get(leaf.address, len(place)))
        nics = [leaf for leaf in by_address if _kind(leaf) == "nic"]
        drives = [leaf for leaf in by_address if _kind(leaf) == "nvme"]
        self._name("GPU", "gpu", found)
        self._name("NIC", "nic", nics)
        self._name("NVMe", "nvme", drives)

    def _name(self, prefix: str, kind: DeviceKind, leaves: list[PciNode]) -> None:
        for i, leaf in enumerate(leaves):
            self.numbers[leaf.address] = f"{prefix}{i}"
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
            if not self._is_wanted(root):
                continue
            bridge = f"HB{sum(d.kind == 'host-bridge' for d in self._upper)}"
            self._upper.append(
                Device(bridge, "host-bridge", f"host bridge {root.address}", numa_node=node.number)
            )
            self.wires.append(internal_wire(socket, bridge, slot))
            for child in root.children:
                self._add_port(child, bridge, node, above_switch=False)

    def _add_port(self, port: PciNode, parent: str, node: NumaNode, *, above_switch: bool) -> None:
        """A root port, or a switch's downstream port: what hangs behind it is one link away."""
        if not self._is_wanted(port):
            return
        if not port.is_bridge:
            self._add_leaf(port, parent, node)
            return
        several = sum(map(self._is_wanted, port.children)) > 1
        if several and not above_switch:
            parent = self._add_switch(port, parent, "card with several functions", port.slot)
        for child in port.children:
            if child.is_bridge:
                self._add_upstream(child, parent, node)
            elif child.address in self.numbers:
                self._add_leaf(child, parent, node)

    def _is_wanted(self, node: PciNode) -> bool:
        """Whether something that is drawn hangs there."""
        return any(leaf.address in self.numbers for leaf in _leaves(node))

    def _add_upstream(self, upstream: PciNode, parent: str, node: NumaNode) -> None:
        """A bridge behind a port is a switch's upstream port, and the bridges below it are its others."""
        if not self._is_wanted(upstream):
            return
        chip = re.search(r"PEX ?\w+|[A-Z]+ Switch", upstream.product)
        switch = self._add_switch(
            upstream, parent, chip[0] if chip else "PCIe switch", upstream.slot
        )
        for child in upstream.children:
            self._add_port(child, switch, node, above_switch=True)

    def _add_switch(self, at: PciNode, parent: str, label: str, slot: Slot | None) -> str:
        id = f"SW{sum(device.kind == 'switch' for device in self._upper)}"
        self._upper.append(Device(id, "switch", f"{label} {at.address}"))
        self.wires.append(pcie_wire(parent, id, self._awake(id, slot, self.gpu)))
        return id

    def _add_leaf(self, leaf: PciNode, parent: str, node: NumaNode) -> None:
        id, kind = self.numbers[leaf.address], self._kinds[leaf.address]
        product = self.products.get(leaf.address) or leaf.product
        gpu = (self.gpu or catalog_gpu(product)) if kind == "gpu" else None
        label = product if kind == "gpu" else "/".join(leaf.names) or product
        self._leaves[id] = Device(
            id, kind, label or leaf.address, gpu.id if gpu else None, node.cpus, node.number
        )
        self.wires.append(pcie_wire(parent, id, self._awake(id, leaf.slot, gpu)))

    def _awake(self, id: str, slot: Slot | None, gpu: Gpu | None) -> Slot:
        """The slot under load: an idle link drops to generation 1, which no such device is built for."""
        usual = slot_of_gpu(gpu)
        if slot is None:
            if gpu is None and id.startswith("GPU"):
                self.notes.append(UNKNOWN_SLOT_NOTE)
            return usual
        if slot.generation == 1 and id.startswith(("GPU", "SW")):
            awake = replace(slot, generation=usual.generation)
            self.notes.append(
                f"the link of {id} was idling at {slot} when it was read; {awake} is assumed"
            )
            return awake
        return slot


def _kind(leaf: PciNode) -> DeviceKind | None:
    if leaf.class_code in _GPU_CLASSES.get(leaf.vendor, ()):
        return "gpu"
    if leaf.class_code >> 8 == 0x02 and not any(name.startswith("wl") for name in leaf.names):
        return "nic"  # all but wireless ones
    return "nvme" if leaf.class_code == 0x0108 else None


def _leaves(node: PciNode) -> Iterator[PciNode]:
    for child in node.children:
        yield from _leaves(child)
    if not node.children and not node.is_bridge and _kind(node) is not None:
        yield node


def _address_key(address: str) -> tuple[int, ...]:
    head, _, function = address.rpartition(".")
    return (*(int(part, 16) for part in head.split(":")), int(function, 16))
