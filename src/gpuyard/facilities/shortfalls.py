"""Find what a site lacks for a design: one line for each shortfall, with the missing amount."""

from collections import Counter
from collections.abc import Iterator, Sequence

from gpuyard.facilities.device import RackDevice
from gpuyard.facilities.power.rack_power import RackPower
from gpuyard.facilities.racks.floor_plan import Room
from gpuyard.facilities.site_rules import SiteRules

FOOTPRINT_M2 = 0.6 * 1.2
RACK_WEIGHT_KG = 120.0
"""The weight of an empty rack; assumed."""


def find_device_shortfalls(device: RackDevice, rules: SiteRules) -> Iterator[str]:
    """Yield the reasons why a device fits into no rack of the site."""
    rack, name = rules.site.rack, device.name
    if not device.tower:
        depth_mm = rack.depth * 1000
        yield from _compare(
            device.depth_mm, depth_mm, " mm", f"{name} is # deep", "a rack accepts #"
        )
        yield from _compare(device.rack_units, rack.units, " U", f"{name} needs #", "a rack has #")
    yield from _compare(
        device.weight_kg, rack.weight, " kg", f"{name} weighs #", "a rack carries at most #"
    )
    kilowatts = device.peak_watts / 1000, rules.rack_watts / 1000
    yield from _compare(*kilowatts, " kW", f"{name} draws #", "a rack may draw #", digits=1)


def find_room_shortfalls(
    room: Room, power: Sequence[RackPower], rules: SiteRules, longest_cable_m: float
) -> Iterator[str]:
    """Yield what the whole design needs and the site does not have."""
    site = rules.site
    circuits = Counter(load.pdu.circuit for rack in power for load in rack.pdus)
    for circuit, needed in circuits.items():
        phases = ", three phases" if circuit.phases == 3 else ""
        feed = f" on feed {circuit.feed}" if circuit.feed else ""
        needs = f"the design needs # circuits of {circuit.voltage:.0f} V and {circuit.amps:.0f} A{phases}{feed}"
        yield from _compare(needed, circuit.count, "", needs, f"{site.name} has #")
    yield from _compare(
        room.floor.racks,
        site.rack.count,
        "",
        "the design needs # racks",
        "the site has space for #",
    )
    kilowatts = sum(placed.device.peak_watts for placed in room.placed) / 1000
    cooled = None if site.cooling_power is None else site.cooling_power / 1000
    yield from _compare(
        kilowatts, cooled, " kW", "the design produces # of heat", "the site cools #", digits=1
    )
    heaviest = max(weigh_rack_kg(room, rack) for rack in range(room.floor.racks))
    yield from _compare(
        heaviest / FOOTPRINT_M2,
        site.floor_load,
        " kg/m²",
        "the heaviest rack puts # on the floor",
        "the floor bears #",
    )
    if site.cable_limit is not None and longest_cable_m > site.cable_limit:
        yield (
            f"the longest network cable is {longest_cable_m:.1f} m, but the limit is"
            f" {site.cable_limit:.1f} m: {longest_cable_m - site.cable_limit:.1f} m too long"
        )


def _compare(
    need: float, have: float | None, unit: str, needs: str, has: str, *, digits: int = 0
) -> Iterator[str]:
    """Yield a line if the need exceeds what the site has. `#` stands for the amount; None has no limit."""
    if have is not None and need > have + 1e-6:
        amounts = [f"{amount:.{digits}f}{unit}" for amount in (need, have, need - have)]
        yield f"{needs.replace('#', amounts[0])}, but {has.replace('#', amounts[1])}: {amounts[2]} short"


def weigh_rack_kg(room: Room, rack: int) -> float:
    """Return the weight of a rack with its contents; towers on the floor have no rack."""
    contents = sum(placed.device.weight_kg for placed in room.get_rack(rack))
    hosts = [p.device for p in room.get_rack(rack) if not p.device.is_switch]
    on_floor = bool(hosts) and all(device.tower for device in hosts)
    return contents + (0.0 if on_floor else RACK_WEIGHT_KG)
