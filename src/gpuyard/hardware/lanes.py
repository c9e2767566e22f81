"""A machine's PCIe lanes: what its cards would take, what its CPUs have, and what to do where they are short."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gpuyard.catalog import Gpu, Link
from gpuyard.catalog.hardware import Cpu, cpus
from gpuyard.hardware.graph import Slot, pcie_wire

_WIDTHS = (4, 8, 16)
DRIVE_LANES = 4


@dataclass(frozen=True)
class PcieCards:
    """Cards of one kind, and the lanes that each of them wants."""

    what: str
    count: int
    lanes_each: int

    @property
    def lanes(self) -> int:
        return self.count * self.lanes_each


@dataclass(frozen=True)
class LaneBudget:
    """What the cards of a machine want of its CPUs' lanes."""

    cpu: Cpu
    sockets: int
    gpu: Gpu
    cards: tuple[PcieCards, ...]

    @property
    def there(self) -> int:
        return self.cpu.lanes(self.sockets)

    @property
    def wanted(self) -> int:
        return sum(cards.lanes for cards in self.cards)

    @property
    def left(self) -> int:
        """Below zero: that many are missing."""
        return self.there - self.wanted

    @property
    def fits(self) -> bool:
        return self.left >= 0

    @property
    def slot(self) -> Slot:
        """What a GPU gets of this CPU with all of its lanes."""
        return Slot(min(self.cpu.pcie_generation, self.gpu.pcie_generation), self.gpu.pcie_lanes)

    @property
    def gpu_lanes_left(self) -> int:
        """The widest slot that all GPUs can have beside the other cards; 0: not even x4."""
        others = sum(cards.lanes for cards in self.cards[1:])
        count = self.cards[0].count
        fitting = [width for width in _WIDTHS if count * width <= self.there - others]
        return min(max(fitting, default=0), self.gpu.pcie_lanes)

    def remedies(self) -> tuple[str, ...]:
        """What would feed all of them, the cheapest first; nothing where they fit."""
        if self.fits:
            return ()
        found = []
        width = self.gpu_lanes_left
        if width:
            whole, less = self.slot, Slot(self.slot.generation, width)
            found.append(
                f"{less} for each GPU: {_gigabytes(less)} instead of {_gigabytes(whole)} GB/s"
            )
        if self.sockets < self.cpu.most_sockets and self.cpu.lanes(2) >= self.wanted:
            found.append(f"two sockets with {self.cpu.lanes(2)} lanes (dual-socket)")
        found.append(
            "PCIe switches, behind which GPUs share an x16 to the CPU (single-root, cascaded)"
        )
        others = _cpus_with(self.wanted, self.cpu.pcie_generation)
        if others:
            found.append("a CPU with more lanes: " + ", ".join(cpu.id for cpu in others))
        return tuple(found)


def lane_budget(
    cpu: Cpu, sockets: int, gpu: Gpu, gpus: int, *, nic: Link | None, nics: int, drives: int
) -> LaneBudget:
    """GPUs first, each with all of its lanes; a network card as many as carry its rate; a drive four."""
    cards = [PcieCards(gpu.name, gpus, gpu.pcie_lanes)]
    if nic is not None and nics:
        cards.append(
            PcieCards(f"network card, {nic.name}", nics, nic_lanes(nic, cpu.pcie_generation))
        )
    if drives:
        cards.append(PcieCards("NVMe drive", drives, DRIVE_LANES))
    return LaneBudget(cpu, sockets, gpu, tuple(cards))


def nic_lanes(nic: Link, generation: int) -> int:
    """The narrowest slot that carries the card's rate; 16 where none does."""
    for width in _WIDTHS:
        if pcie_wire("", "", Slot(generation, width)).bytes_per_second >= 0.95 * _payload(nic):
            return width
    return max(_WIDTHS)


def _payload(nic: Link) -> float:
    return min(nic.raw_bytes_per_second, nic.effective_bytes_per_second)


def _cpus_with(lanes: int, generation: int) -> Sequence[Cpu]:
    """Up to three of one socket that have them at least at this generation, the fewest lanes first."""
    enough = [c for c in cpus() if c.pcie_lanes >= lanes and c.pcie_generation >= generation]
    return sorted(enough, key=lambda c: (c.pcie_lanes, c.pcie_generation, -c.date.toordinal()))[:3]


def _gigabytes(slot: Slot) -> str:
    return f"{math.floor(pcie_wire('', '', slot).bytes_per_second / 1e8) / 10:g}"
