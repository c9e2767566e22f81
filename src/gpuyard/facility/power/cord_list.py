"""Every cord of the design: from which outlet to which supply, its plugs at both ends, its length."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuyard.facility.power.cord import CordKind, cord_for
from gpuyard.facility.power.rack_power import Cord, LoadedPdu
from gpuyard.facility.racks.floor_plan import UNIT_M, PlacedDevice

if TYPE_CHECKING:
    from gpuyard.facility.design import FacilityDesign

_ACROSS_M = 0.5  # from the pdu to the supply and some slack
_FROM_THE_WALL_M = 1.8


@dataclass(frozen=True)
class PlacedCord:
    """One cord; `amps` is what flows in it at worst."""

    rack: int
    feed: str
    pdu: int
    bank: int
    leg: int
    outlet: str
    device: PlacedDevice
    supply: int
    kind: CordKind
    amps: float


def all_cords(design: "FacilityDesign") -> Iterator[PlacedCord]:
    """Rack by rack, feed by feed."""
    for rack in range(design.room.floor.racks):
        yield from rack_cords(design, rack)


def rack_cords(design: "FacilityDesign", rack: int) -> Iterator[PlacedCord]:
    numbers: Counter[str] = Counter()
    here = design.room.in_rack(rack)
    for load in design.power[rack].pdus:
        numbers[load.feed] += 1
        for cord, (bank, outlet), device in _matched(load, here):
            distance = _distance_m(design, load, bank, device)
            yield PlacedCord(
                rack=rack + 1,
                feed=load.feed,
                pdu=numbers[load.feed],
                bank=bank + 1,
                leg=load.pdu.banks[bank].leg,
                outlet=outlet,
                device=device,
                supply=cord.supply + 1,
                kind=cord_for(cord.device.inlet, outlet, load.pdu, distance),
                amps=load.cord_amps(cord),
            )


def _matched(
    load: LoadedPdu, here: Sequence[PlacedDevice]
) -> Iterator[tuple[Cord, tuple[int, str], PlacedDevice]]:
    """Cords that are alike may change places: low devices take low banks, so that cords are short."""
    for device in dict.fromkeys(cord.device for cord in load.cords):
        alike = [placed for placed in here if placed.device == device]
        pairs = zip(load.cords, load.balance.plugged, strict=True)
        mine = [(cord, at) for cord, at in pairs if cord.device == device]
        cords = sorted((cord for cord, _ in mine), key=lambda c: (alike[c.position].unit, c.supply))
        for cord, at in zip(cords, sorted(at for _, at in mine), strict=True):
            yield cord, at, alike[cord.position]


def _distance_m(
    design: "FacilityDesign", load: LoadedPdu, bank: int, device: PlacedDevice
) -> float:
    """Banks follow each other up a PDU that is as tall as the rack."""
    if load.pdu.model is None:
        return _FROM_THE_WALL_M
    if load.pdu.model.rack_units:
        return device.unit * UNIT_M + _ACROSS_M
    height = (bank + 0.5) / len(load.pdu.banks) * design.room.floor.units
    middle = device.unit + device.device.rack_units / 2
    return abs(height - middle) * UNIT_M + _ACROSS_M


def check_cords(design: "FacilityDesign") -> None:
    """Raise where no cord is long enough; racks with the same contents are corded the same."""
    for rack in {
        design.room.contents(rack): rack for rack in range(design.room.floor.racks)
    }.values():
        for _ in rack_cords(design, rack):
            pass


def cord_counts(design: "FacilityDesign") -> Counter[CordKind]:
    """How many to order of each."""
    return Counter(cord.kind for cord in all_cords(design))
