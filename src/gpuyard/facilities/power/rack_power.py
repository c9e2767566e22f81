"""Distribute the cords of one rack over feeds, PDUs, phases, and banks."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from gpuyard.facilities.device import Contents, RackDevice
from gpuyard.facilities.power.cord import find_max_amps, find_outlets
from gpuyard.facilities.power.electricity import apparent_va
from gpuyard.facilities.power.phases import CordLoad, PhaseBalance, balance_phases
from gpuyard.facilities.power.rack_pdu import RackPdu


@dataclass(frozen=True)
class Cord:
    """The cord of one power supply; `position` counts the equal devices in the rack."""

    device: RackDevice
    position: int
    supply: int


@dataclass(frozen=True)
class LoadedPdu:
    """One PDU with its cords. Loads are those of the worst case: after the other feed has failed."""

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
        """The load at peak while all feeds and supplies work."""
        return sum(apparent_va(c.device.peak_watts / c.device.supplies) for c in self.cords)

    def cord_amps(self, cord: Cord) -> float:
        watts = cord.device.cord_watts(1 if self.feed == "B" else 0, self.feeds)
        return apparent_va(watts) / self.pdu.outlet_volts

    def bank_amps(self) -> tuple[float, ...]:
        amps = [0.0] * len(self.pdu.banks)
        for cord, (bank, _) in zip(self.cords, self.balance.outlets, strict=True):
            amps[bank] += self.cord_amps(cord)
        return tuple(amps)

    @property
    def fullest_line_share(self) -> float:
        """The load of the fullest line as a share of its continuous limit."""
        return max(self.line_amps) / self.pdu.usable_line_amps

    @property
    def fullest_bank_share(self) -> float:
        pairs = zip(self.bank_amps(), self.pdu.banks, strict=True)
        return max(amps / bank.usable_amps for amps, bank in pairs)


@dataclass(frozen=True)
class RackPower:
    """All PDUs of a rack."""

    pdus: tuple[LoadedPdu, ...]


class CannotPower(Exception):
    """Raised if PDUs cannot power some devices; the message says what is missing and by how much."""


def power_rack(contents: Contents, pdus: Sequence[RackPdu], per_feed: int) -> RackPower:
    """Power the contents of a rack with as few PDUs as possible: one model per feed, at most `per_feed` of each.

    Raises CannotPower.
    """
    feeds = len(pdus)
    loads: list[LoadedPdu] = []
    for feed, pdu in enumerate(pdus):
        cords = _list_cords(contents, feed, feeds)
        if cords:
            loads += _power_feed(pdu, cords, feed, feeds, per_feed)
    return RackPower(tuple(loads))


def _list_cords(contents: Contents, feed: int, feeds: int) -> list[Cord]:
    """Return the cords on this feed: a device's first supplies are on A, the others on B."""
    cords = []
    for device, count in contents:
        on_feed = device.count_cords(feed, feeds)
        before = sum(device.count_cords(f, feeds) for f in range(feed))
        cords += [Cord(device, n, before + s) for n in range(count) for s in range(on_feed)]
    return cords


def _power_feed(
    pdu: RackPdu, cords: list[Cord], feed: int, feeds: int, per_feed: int
) -> list[LoadedPdu]:
    name = "AB"[feed]
    loads = [_calculate_load(cord, pdu, feed, feeds) for cord in cords]
    total_va = sum(load.leg_va for load in loads)
    min_pdus = max(math.ceil(total_va / pdu.usable_va - 1e-9), 1)
    for count in range(min_pdus, per_feed + 1):
        shares = _share_out(loads, count)
        balances = [_balance(pdu, [loads[i] for i in indices]) for indices in shares]
        if all(balance is not None for balance in balances):
            return [
                LoadedPdu(name, feeds, pdu, tuple(cords[i] for i in indices), balance)
                for indices, balance in zip(shares, balances, strict=True)
                if balance is not None
            ]
    raise CannotPower(_explain(f"feed {name}" if feeds == 2 else "a rack", pdu, loads, per_feed))


def _calculate_load(cord: Cord, pdu: RackPdu, feed: int, feeds: int) -> CordLoad:
    device = cord.device
    worst_va = apparent_va(device.cord_watts(feed, feeds))
    stays_on = feeds == 2 and device.find_state_without(1 - feed, feeds) != "off"
    leg_va = worst_va if stays_on else apparent_va(device.peak_watts / device.supplies)
    if pdu.outlet_volts < device.volts_minimum:
        raise CannotPower(
            f"{device.name} needs at least {device.volts_minimum:.0f} V, but {pdu.name} provides"
            f" {pdu.outlet_volts:.0f} V: {device.volts_minimum - pdu.outlet_volts:.0f} V short"
        )
    amps = worst_va / pdu.outlet_volts
    faces = [face for face in find_outlets(device.inlet) if pdu.count_outlets(face)]
    if not faces:
        raise CannotPower(
            f"no common cord connects the {device.inlet.upper()} inlet of {device.name} to an outlet of"
            f" {pdu.name}"
        )
    strong = tuple(f for f in faces if find_max_amps(device.inlet, f, pdu) >= amps - 1e-9)
    largest_bank = max(bank.usable_amps for bank in pdu.banks)
    max_amps = min(max(find_max_amps(device.inlet, f, pdu) for f in faces), largest_bank)
    if not strong or amps > largest_bank + 1e-9:
        when = "after a feed has failed" if feeds == 2 else "at its peak"
        raise CannotPower(
            f"one power supply of {device.name} draws {amps:.1f} A {when}, but an outlet of {pdu.name}"
            f" carries {max_amps:.1f} A continuously: {amps - max_amps:.1f} A short"
        )
    return CordLoad(round(leg_va, 3), round(worst_va, 3), strong)


def _share_out(loads: Sequence[CordLoad], pdus: int) -> list[list[int]]:
    """Give each load, the largest first, to the PDU that carries the least."""
    shares: list[list[int]] = [[] for _ in range(pdus)]
    carried_va = [0.0] * pdus
    for index in sorted(range(len(loads)), key=lambda i: -loads[i].leg_va):
        least_loaded = carried_va.index(min(carried_va))
        shares[least_loaded].append(index)
        carried_va[least_loaded] += loads[index].leg_va
    return [sorted(indices) for indices in shares if indices]


def _balance(pdu: RackPdu, loads: Sequence[CordLoad]) -> PhaseBalance | None:
    balance = _balance_cached(pdu, tuple(loads))
    if balance is None:
        return None
    lines = pdu.line_amps(balance.leg_va)
    return balance if max(lines) <= pdu.usable_line_amps + 1e-6 else None


@functools.lru_cache(maxsize=512)
def _balance_cached(pdu: RackPdu, loads: tuple[CordLoad, ...]) -> PhaseBalance | None:
    return balance_phases(loads, pdu.banks, pdu.outlet_volts)


def _explain(where: str, pdu: RackPdu, loads: Sequence[CordLoad], per_feed: int) -> str:
    """Say which limit of the PDUs the loads exceed."""
    total_va, usable_va = sum(load.leg_va for load in loads), per_feed * pdu.usable_va
    faces = {face for load in loads for face in load.outlets}
    outlets = per_feed * sum(pdu.count_outlets(face) for face in faces)
    if total_va > usable_va:
        return (
            f"{where} must carry {total_va / 1000:.1f} kVA, but {per_feed} × {pdu.name} carry"
            f" {usable_va / 1000:.1f} kVA: {(total_va - usable_va) / 1000:.1f} kVA short"
        )
    if len(loads) > outlets:
        return (
            f"{where} needs {len(loads)} outlets, but {per_feed} × {pdu.name} have {outlets}"
            f" that fit: {len(loads) - outlets} short"
        )
    max_amps = max(load.bank_va for load in loads) / pdu.outlet_volts
    return (
        f"{where} has {len(loads)} cords of up to {max_amps:.1f} A, but the banks of {per_feed} ×"
        f" {pdu.name} ({pdu.banks[0].usable_amps:.0f} A each) cannot carry them all"
    )
