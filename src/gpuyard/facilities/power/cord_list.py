"""The cords of a room: each with its outlet, its power supply, its plugs, and its length."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuyard.facilities.power.cord import CordKind, choose_cord
from gpuyard.facilities.power.rack_power import Cord, LoadedPdu, RackPower
from gpuyard.facilities.racks.floor_plan import UNIT_M, PlacedDevice, Room

_ACROSS_M = 0.5  # from the PDU to the supply, with some slack
_FROM_WALL_M = 1.8


@dataclass(frozen=True)
class PlacedCord:
    """One cord in its rack; `amps` is its current in the worst case."""

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


def list_rack_cords(room: Room, power: RackPower, rack: int) -> Iterator[PlacedCord]:
    """Yield the cords of a rack, PDU by PDU. Raises GpuyardError if no common cord is long enough."""
    pdu_numbers: Counter[str] = Counter()
    placed_devices = room.get_rack(rack)
    for load in power.pdus:
        pdu_numbers[load.feed] += 1
        for cord, (bank, outlet), device in _match_cords(load, placed_devices):
            distance_m = _measure_distance_m(room, load, bank, device)
            yield PlacedCord(
                rack=rack + 1,
                feed=load.feed,
                pdu=pdu_numbers[load.feed],
                bank=bank + 1,
                leg=load.pdu.banks[bank].leg,
                outlet=outlet,
                device=device,
                supply=cord.supply + 1,
                kind=choose_cord(cord.device.inlet, outlet, load.pdu, distance_m),
                amps=load.cord_amps(cord),
            )


def _match_cords(
    load: LoadedPdu, placed_devices: Sequence[PlacedDevice]
) -> Iterator[tuple[Cord, tuple[int, str], PlacedDevice]]:
    """Yield (cord, (bank, outlet), device). Equal devices swap outlets so that low ones get low banks."""
    for device in dict.fromkeys(cord.device for cord in load.cords):
        equal_devices = [placed for placed in placed_devices if placed.device == device]
        pairs = zip(load.cords, load.balance.outlets, strict=True)
        plugged = [(cord, outlet) for cord, outlet in pairs if cord.device == device]
        cords = sorted(
            (cord for cord, _ in plugged), key=lambda c: (equal_devices[c.position].unit, c.supply)
        )
        for cord, outlet in zip(cords, sorted(outlet for _, outlet in plugged), strict=True):
            yield cord, outlet, equal_devices[cord.position]


def _measure_distance_m(room: Room, load: LoadedPdu, bank: int, device: PlacedDevice) -> float:
    """Return the distance from an outlet to a device; a vertical PDU has its banks from bottom to top."""
    if load.pdu.model is None:
        return _FROM_WALL_M
    if load.pdu.model.rack_units:
        return device.unit * UNIT_M + _ACROSS_M
    height = (bank + 0.5) / len(load.pdu.banks) * room.floor.units
    middle = device.unit + device.device.rack_units / 2
    return abs(height - middle) * UNIT_M + _ACROSS_M
