"""What a site is short of for a design: one sentence for each thing, with how much is missing."""

from collections.abc import Iterator, Sequence

from gpuyard.facility.device import Device
from gpuyard.facility.power.rack_power import RackPower
from gpuyard.facility.racks.placing import Room
from gpuyard.facility.site_rules import SiteRules

FOOTPRINT_M2 = 0.6 * 1.2
RACK_WEIGHT_KG = 120.0
"""An empty rack; assumed."""


def device_shortfalls(device: Device, rules: SiteRules) -> Iterator[str]:
    """What keeps one device out of every rack of the site."""
    rack = rules.site.rack
    if device.depth_mm > rack.depth * 1000 + 1e-6 and not device.tower:
        short = device.depth_mm - rack.depth * 1000
        yield (
            f"{device.name} is {device.depth_mm:.0f} mm deep, and a rack takes"
            f" {rack.depth * 1000:.0f} mm: {short:.0f} mm too little"
        )
    if device.rack_units > rack.units and not device.tower:
        yield (
            f"{device.name} takes {device.rack_units} rack units, and a rack has {rack.units}:"
            f" {device.rack_units - rack.units} too few"
        )
    if device.weight_kg > rack.weight:
        short = device.weight_kg - rack.weight
        yield (
            f"{device.name} weighs {device.weight_kg:.0f} kg, and a rack carries {rack.weight:.0f} kg:"
            f" {short:.0f} kg too little"
        )
    if device.peak_watts > rules.rack_watts:
        short = device.peak_watts - rules.rack_watts
        yield (
            f"{device.name} draws {device.peak_watts / 1000:.1f} kW, and a rack may have"
            f" {rules.rack_watts / 1000:.1f} kW: {short / 1000:.1f} kW too little"
        )


def room_shortfalls(
    room: Room, power: Sequence[RackPower], rules: SiteRules, longest_cable_m: float
) -> Iterator[str]:
    """What the whole design needs and the site does not have."""
    site = rules.site
    yield from _circuits(power, rules)
    if site.rack.count is not None and room.floor.racks > site.rack.count:
        yield (
            f"the design takes {room.floor.racks} racks, and there is room for {site.rack.count}:"
            f" {room.floor.racks - site.rack.count} too few"
        )
    watts = sum(placed.device.peak_watts for placed in room.placed)
    if site.cooling_power is not None and watts > site.cooling_power:
        yield (
            f"it turns {watts / 1000:.1f} kW into heat, and the site cools"
            f" {site.cooling_power / 1000:.1f} kW: {(watts - site.cooling_power) / 1000:.1f} kW too little"
        )
    heaviest = max(rack_weight_kg(room, rack) for rack in range(room.floor.racks))
    if site.floor_load is not None and heaviest / FOOTPRINT_M2 > site.floor_load:
        load = heaviest / FOOTPRINT_M2
        yield (
            f"the heaviest rack puts {load:.0f} kg/m² on the floor, and it bears"
            f" {site.floor_load:.0f} kg/m²: {load - site.floor_load:.0f} kg/m² too little"
        )
    if site.cable_limit is not None and longest_cable_m > site.cable_limit:
        yield (
            f"the longest network cable is {longest_cable_m:.1f} m, and the limit is"
            f" {site.cable_limit:.1f} m: {longest_cable_m - site.cable_limit:.1f} m too long"
        )


def _circuits(power: Sequence[RackPower], rules: SiteRules) -> Iterator[str]:
    for circuit in dict.fromkeys(load.pdu.circuit for rack in power for load in rack.pdus):
        needed = sum(load.pdu.circuit == circuit for rack in power for load in rack.pdus)
        if circuit.count is not None and needed > circuit.count:
            phases = ", three phases" if circuit.phases == 3 else ""
            feed = f" on feed {circuit.feed}" if circuit.feed else ""
            yield (
                f"the design needs {needed} circuits of {circuit.voltage:.0f} V and"
                f" {circuit.amps:.0f} A{phases}{feed}, and {rules.site.name} has {circuit.count}:"
                f" {needed - circuit.count} too few"
            )


def rack_weight_kg(room: Room, rack: int) -> float:
    """With the rack itself."""
    inside = sum(placed.device.weight_kg for placed in room.in_rack(rack))
    return inside + (0.0 if all(p.device.tower for p in room.in_rack(rack)) else RACK_WEIGHT_KG)
