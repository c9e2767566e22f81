"""The PCIe lane budget of a machine: lanes that its cards need, lanes that its CPUs have, and remedies for a shortage."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gpuyard.catalog import Gpu, Link
from gpuyard.catalog.hardware import Cpu, cpus
from gpuyard.hardware.graph import Slot, create_pcie_wire

_WIDTHS = (4, 8, 16)
DRIVE_LANES = 4


@dataclass(frozen=True)
class PcieCards:
    """Cards of one kind, and the lanes that each of them needs."""

    name: str
    count: int
    lanes_each: int

    @property
    def lanes(self) -> int:
        return self.count * self.lanes_each


@dataclass(frozen=True)
class LaneBudget:
    """The lanes that a machine's cards need, and those that its CPUs have. The GPUs are the first of the cards."""

    cpu: Cpu
    sockets: int
    gpu: Gpu
    cards: tuple[PcieCards, ...]

    @property
    def available_lanes(self) -> int:
        return self.cpu.lanes(self.sockets)

    @property
    def required_lanes(self) -> int:
        return sum(cards.lanes for cards in self.cards)

    @property
    def spare_lanes(self) -> int:
        """The lanes that remain free; negative if lanes are missing."""
        return self.available_lanes - self.required_lanes

    @property
    def fits(self) -> bool:
        return self.spare_lanes >= 0

    @property
    def slot(self) -> Slot:
        """The slot of a GPU that gets all of its lanes from this CPU."""
        return Slot(min(self.cpu.pcie_generation, self.gpu.pcie_generation), self.gpu.pcie_lanes)

    @property
    def max_lanes_per_gpu(self) -> int:
        """The widest slot that all GPUs can have next to the other cards; 0 if not even x4 fits."""
        other_lanes = sum(cards.lanes for cards in self.cards[1:])
        count = self.cards[0].count
        widths = [w for w in _WIDTHS if count * w <= self.available_lanes - other_lanes]
        return min(max(widths, default=0), self.gpu.pcie_lanes)

    def remedies(self) -> tuple[str, ...]:
        """Return ways to connect all cards, the cheapest first; empty if they fit."""
        if self.fits:
            return ()
        remedies = []
        if self.max_lanes_per_gpu:
            narrow = Slot(self.slot.generation, self.max_lanes_per_gpu)
            remedies.append(
                f"{narrow} for each GPU: {_format_gb_per_second(narrow)} instead of "
                f"{_format_gb_per_second(self.slot)} GB/s"
            )
        if self.sockets < self.cpu.max_sockets and self.cpu.lanes(2) >= self.required_lanes:
            remedies.append(f"two sockets with {self.cpu.lanes(2)} lanes (dual-socket)")
        remedies.append(
            "PCIe switches, behind which GPUs share an x16 link to the CPU (single-root, cascaded)"
        )
        larger_cpus = _find_cpus(self.required_lanes, self.cpu.pcie_generation)
        if larger_cpus:
            remedies.append("a CPU with more lanes: " + ", ".join(cpu.id for cpu in larger_cpus))
        return tuple(remedies)


def create_lane_budget(
    cpu: Cpu, sockets: int, gpu: Gpu, gpus: int, *, nic: Link | None, nics: int, drives: int
) -> LaneBudget:
    """Create the budget of a machine: all lanes for a GPU, enough for a network card's rate, and four for a drive."""
    cards = [PcieCards(gpu.name, gpus, gpu.pcie_lanes)]
    if nic is not None and nics:
        cards.append(
            PcieCards(f"network card, {nic.name}", nics, count_nic_lanes(nic, cpu.pcie_generation))
        )
    if drives:
        cards.append(PcieCards("NVMe drive", drives, DRIVE_LANES))
    return LaneBudget(cpu, sockets, gpu, tuple(cards))


def count_nic_lanes(nic: Link, generation: int) -> int:
    """Return the width of the narrowest slot that carries the card's rate; 16 if none does."""
    rate = min(nic.raw_bytes_per_second, nic.effective_bytes_per_second)
    for width in _WIDTHS:
        if create_pcie_wire("", "", Slot(generation, width)).bytes_per_second >= 0.95 * rate:
            return width
    return max(_WIDTHS)


def _find_cpus(lanes: int, generation: int) -> Sequence[Cpu]:
    """Return up to three CPUs that have enough lanes of this or a newer generation, the fewest lanes first."""
    matches = [c for c in cpus() if c.pcie_lanes >= lanes and c.pcie_generation >= generation]
    return sorted(matches, key=lambda c: (c.pcie_lanes, c.pcie_generation, -c.date.toordinal()))[:3]


def _format_gb_per_second(slot: Slot) -> str:
    return f"{math.floor(create_pcie_wire('', '', slot).bytes_per_second / 1e8) / 10:g}"
