"""What the room must offer: circuits, receptacles, cooling, air, floor and quiet."""

import math
from collections import Counter
from dataclasses import dataclass

from gpuyard.catalog.facility import plugs
from gpuyard.facility.design import FacilityDesign
from gpuyard.facility.power.electricity import airflow_cfm, btu_per_hour, cooling_tons
from gpuyard.facility.power.wall_power import INRUSH_AMPS, most_at_once
from gpuyard.facility.shortfalls import FOOTPRINT_M2, rack_weight_kg
from gpuyard.specs.site import Circuit

_FLOOR_PER_RACK_M2 = 2.5
"""With its share of the aisles; assumed."""
_SERVER_DBA = 85.0
"""One air-cooled rack server under load at 1 m; assumed where its maker gives nothing."""


@dataclass(frozen=True)
class CircuitRequirement:
    """Circuits of one kind on one feed."""

    feed: str
    circuit: Circuit
    count: int

    @property
    def receptacle(self) -> str:
        return plugs().get(self.circuit.receptacle).name


@dataclass(frozen=True)
class RackRequirements:
    """One rack, with everything in it."""

    number: int
    units_used: int
    weight_kg: float
    typical_watts: float
    peak_watts: float
    btu_per_hour: float
    airflow_cfm: float


@dataclass(frozen=True)
class RoomRequirements:
    """The sums that an electrician, a cooling engineer and a landlord ask for."""

    circuits: tuple[CircuitRequirement, ...]
    racks: tuple[RackRequirements, ...]
    peak_watts: float
    typical_watts: float
    btu_per_hour: float
    cooling_tons: float
    airflow_cfm: float
    floor_kg_per_m2: float
    floor_m2: float
    noise_dba: float
    inrush_amps: float
    most_supplies: int
    """On one circuit."""
    supplies_at_once: int


def room_requirements(design: FacilityDesign) -> RoomRequirements:
    """Everything at its peak: rooms are built for the worst hour."""
    rise = design.site.temperature_rise
    racks = tuple(_rack(design, rack, rise) for rack in range(design.room.floor.racks))
    fullest = max(len(load.cords) for rack in design.power for load in rack.pdus)
    pdu = design.pdu_choice.pdus[0]
    return RoomRequirements(
        circuits=_circuits(design),
        racks=racks,
        peak_watts=design.peak_watts,
        typical_watts=design.typical_watts,
        btu_per_hour=btu_per_hour(design.peak_watts),
        cooling_tons=cooling_tons(design.peak_watts),
        airflow_cfm=airflow_cfm(design.peak_watts, rise),
        floor_kg_per_m2=max(rack.weight_kg for rack in racks) / FOOTPRINT_M2,
        floor_m2=(1.0 if design.on_desk else _FLOOR_PER_RACK_M2) * len(racks),
        noise_dba=_noise(design),
        inrush_amps=fullest * INRUSH_AMPS,
        most_supplies=fullest,
        supplies_at_once=most_at_once(pdu.breaker_amps),
    )


def _rack(design: FacilityDesign, rack: int, rise: float) -> RackRequirements:
    placed = design.room.in_rack(rack)
    peak = sum(p.device.peak_watts for p in placed)
    return RackRequirements(
        number=rack + 1,
        units_used=sum(p.device.rack_units for p in placed),
        weight_kg=rack_weight_kg(design.room, rack),
        typical_watts=sum(p.device.typical_watts for p in placed),
        peak_watts=peak,
        btu_per_hour=btu_per_hour(peak),
        airflow_cfm=airflow_cfm(peak, rise),
    )


def _circuits(design: FacilityDesign) -> tuple[CircuitRequirement, ...]:
    counted = Counter((load.feed, load.pdu.circuit) for rack in design.power for load in rack.pdus)
    return tuple(
        CircuitRequirement(feed, circuit, count) for (feed, circuit), count in counted.items()
    )


def _noise(design: FacilityDesign) -> float:
    """Sources add by their power: two alike are 3 dB louder than one."""
    power = sum(
        10 ** ((placed.device.noise_dba or _SERVER_DBA) / 10)
        for placed in design.room.placed
        if not placed.device.is_switch
    )
    return 10 * math.log10(power)
