"""How the cords of one rack are shared out over feeds, PDUs, phases and banks, and what a failed
feed does to it."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from gpuyard.facility.device import Contents, RackDevice
from gpuyard.facility.power.cord import cord_amps, outlets_for
from gpuyard.facility.power.electricity import apparent_va
from gpuyard.facility.power.phases import CordLoad, PhaseBalance, balance
from gpuyard.facility.power.rack_pdu import RackPdu


@dataclass(frozen=True)
class Cord:
    """One supply of one device of the rack: `position` counts the devices of that kind."""

    device: RackDevice
    position: int
    supply: int


@dataclass(frozen=True)
class LoadedPdu:
    """One PDU with what is plugged in. Loads are at worst: when the other feed has failed."""

    feed: str
    feeds: int
    pdu: RackPdu
    cords: tuple[Cord, ...]
    balance: PhaseBalance

    @property
    def line_amps(self) -> tuple[float, ...]:
        return self.pdu.line_amps(self.balance.leg_va)

    @property
    def va(self) -> float:
        return sum(self.balance.leg_va)

    @property
    def normal_va(self) -> float:
        """With all feeds and supplies there."""
        return sum(apparent_va(c.device.peak_watts / c.device.supplies) for c in self.cords)

    def cord_amps(self, cord: Cord) -> float:
        watts = cord.device.cord_watts(1 if self.feed == "B" else 0, self.feeds)
        return apparent_va(watts) / self.pdu.outlet_volts

    def bank_amps(self) -> tuple[float, ...]:
        amps = [0.0] * len(self.pdu.banks)
        for cord, (bank, _) in zip(self.cords, self.balance.plugged, strict=True):
            amps[bank] += self.cord_amps(cord)
        return tuple(amps)

    @property
    def fullest_line(self) -> float:
        """As a share of what its breaker may carry continuously."""
        return max(self.line_amps) / self.pdu.usable_line_amps

    @property
    def fullest_bank(self) -> float:
        pairs = zip(self.bank_amps(), self.pdu.banks, strict=True)
        return max(amps / bank.usable_amps for amps, bank in pairs)


@dataclass(frozen=True)
class RackPower:
    """Every PDU of a rack."""

    pdus: tuple[LoadedPdu, ...]


class CannotPower(Exception):
    """These devices can't be fed here; the sentence says what is missing by how much."""


def cords_of(contents: Contents, feed: int, feeds: int) -> list[Cord]:
    """The supplies on this feed: a device's first ones on A, the rest on B."""
    cords = []
    for device, count in contents:
        here = device.cords_on(feed, feeds)
        before = sum(device.cords_on(f, feeds) for f in range(feed))
        cords += [Cord(device, n, before + s) for n in range(count) for s in range(here)]
    return cords


def power_rack(contents: Contents, pdus: Sequence[RackPdu], per_feed: int) -> RackPower:
    """PDUs for the contents: one model on each feed, as few as carry it, at most `per_feed`.

    Raises CannotPower.
    """
    feeds = len(pdus)
    loads: list[LoadedPdu] = []
    for feed, pdu in enumerate(pdus):
        cords = cords_of(contents, feed, feeds)
        if cords:
            loads += _fed(pdu, cords, (feed, feeds), per_feed)
    return RackPower(tuple(loads))


def _fed(
    pdu: RackPdu, cords: list[Cord], feed_of: tuple[int, int], per_feed: int
) -> list[LoadedPdu]:
    feed, feeds = feed_of
    name = "AB"[feed]
    loads = [_load(cord, pdu, feed, feeds) for cord in cords]
    total = sum(load.leg_va for load in loads)
    fewest = max(math.ceil(total / pdu.usable_va - 1e-9), 1)
    for count in range(fewest, per_feed + 1):
        dealt = _dealt(loads, count)
        found = [_balanced(pdu, [loads[i] for i in indices]) for indices in dealt]
        if all(one is not None for one in found):
            return [
                LoadedPdu(name, feeds, pdu, tuple(cords[i] for i in indices), one)
                for indices, one in zip(dealt, found, strict=True)
                if one is not None
            ]
    raise CannotPower(_why_not(f"feed {name}" if feeds == 2 else "a rack", pdu, loads, per_feed))


def _load(cord: Cord, pdu: RackPdu, feed: int, feeds: int) -> CordLoad:
    device = cord.device
    worst = apparent_va(device.cord_watts(feed, feeds))
    stays = feeds == 2 and device.after_losing(1 - feed, feeds) != "off"
    carried = worst if stays else apparent_va(device.peak_watts / device.supplies)
    if pdu.outlet_volts < device.volts_minimum:
        raise CannotPower(
            f"{device.name} needs {device.volts_minimum:.0f} V or more, and {pdu.name} gives"
            f" {pdu.outlet_volts:.0f} V: {device.volts_minimum - pdu.outlet_volts:.0f} V short"
        )
    amps = worst / pdu.outlet_volts
    faces = [face for face in outlets_for(device.inlet) if pdu.outlets(face)]
    if not faces:
        raise CannotPower(
            f"no common cord goes from the {device.inlet.upper()} inlet of {device.name} to an outlet of"
            f" {pdu.name}"
        )
    strong = tuple(f for f in faces if cord_amps(device.inlet, f, pdu) >= amps - 1e-9)
    largest_bank = max(bank.usable_amps for bank in pdu.banks)
    most = min(max(cord_amps(device.inlet, f, pdu) for f in faces), largest_bank)
    if not strong or amps > largest_bank + 1e-9:
        when = "after a feed has failed" if feeds == 2 else "at its peak"
        raise CannotPower(
            f"one power supply of {device.name} draws {amps:.1f} A {when}, and an outlet of {pdu.name}"
            f" carries {most:.1f} A continuously: {amps - most:.1f} A short"
        )
    return CordLoad(round(carried, 3), round(worst, 3), strong)


def _dealt(loads: Sequence[CordLoad], pdus: int) -> list[list[int]]:
    """The largest first, each to the PDU that carries the least."""
    dealt: list[list[int]] = [[] for _ in range(pdus)]
    carried = [0.0] * pdus
    for index in sorted(range(len(loads)), key=lambda i: -loads[i].leg_va):
        least = carried.index(min(carried))
        dealt[least].append(index)
        carried[least] += loads[index].leg_va
    return [sorted(indices) for indices in dealt if indices]


def _balanced(pdu: RackPdu, loads: Sequence[CordLoad]) -> PhaseBalance | None:
    found = _cached_balance(pdu, tuple(loads))
    if found is None:
        return None
    lines = pdu.line_amps(found.leg_va)
    return found if max(lines) <= pdu.usable_line_amps + 1e-6 else None


@functools.lru_cache(maxsize=512)
def _cached_balance(pdu: RackPdu, loads: tuple[CordLoad, ...]) -> PhaseBalance | None:
    return balance(loads, pdu.banks, pdu.outlet_volts)


def _why_not(where: str, pdu: RackPdu, loads: Sequence[CordLoad], per_feed: int) -> str:
    total_va, has_va = sum(load.leg_va for load in loads), per_feed * pdu.usable_va
    faces = {face for load in loads for face in load.outlets}
    has_outlets = per_feed * sum(pdu.outlets(face) for face in faces)
    if total_va > has_va:
        return (
            f"{where} must carry {total_va / 1000:.1f} kVA, and {per_feed} × {pdu.name} carry"
            f" {has_va / 1000:.1f} kVA: {(total_va - has_va) / 1000:.1f} kVA short"
        )
    if len(loads) > has_outlets:
        return (
            f"{where} needs {len(loads)} outlets, and {per_feed} × {pdu.name} have {has_outlets}"
            f" that fit: {len(loads) - has_outlets} short"
        )
    most = max(load.bank_va for load in loads) / pdu.outlet_volts
    return (
        f"{where} has {len(loads)} cords of up to {most:.1f} A, and the banks of {per_feed} ×"
        f" {pdu.name} ({pdu.banks[0].usable_amps:.0f} A each) can't take them all"
    )
