"""The requirements of a designed room: circuits, cooling, floor, and noise, and the effect of a failed feed."""

import math
from collections import Counter
from dataclasses import dataclass

from gpuyard.catalog.facility import plugs
from gpuyard.facilities.design import FacilityDesign
from gpuyard.facilities.power.electricity import airflow_cfm, btu_per_hour, cooling_tons
from gpuyard.facilities.power.rack_power import LoadedPdu
from gpuyard.facilities.power.wall_power import INRUSH_AMPS, count_simultaneous_starts
from gpuyard.facilities.shortfalls import FOOTPRINT_M2, weigh_rack_kg
from gpuyard.specs.site import Circuit

_FLOOR_PER_RACK_M2 = 2.5
"""The floor of a rack with its share of the aisles; assumed."""
_SERVER_DBA = 85.0
"""The noise of one air-cooled rack server under load at 1 m; assumed if the vendor lists none."""


@dataclass(frozen=True)
class CircuitRequirement:
    """Equal circuits on one feed."""

    feed: str
    circuit: Circuit
    count: int

    @property
    def receptacle(self) -> str:
        return plugs().get(self.circuit.receptacle).name


@dataclass(frozen=True)
class RackRequirements:
    """One rack with everything in it."""

    number: int
    units_used: int
    weight_kg: float
    typical_watts: float
    peak_watts: float
    btu_per_hour: float
    airflow_cfm: float


@dataclass(frozen=True)
class RoomRequirements:
    """The totals that an electrician, a cooling engineer, and a landlord ask for."""

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
    max_supplies_per_circuit: int
    max_simultaneous_starts: int


def calculate_requirements(design: FacilityDesign) -> RoomRequirements:
    """Calculate the requirements with everything at its peak: rooms are built for the worst hour."""
    rise = design.site.temperature_rise
    racks = tuple(_calculate_rack(design, rack, rise) for rack in range(design.room.floor.racks))
    max_supplies = max(len(load.cords) for rack in design.power for load in rack.pdus)
    pdu = design.pdu_choice.pdus[0]
    return RoomRequirements(
        circuits=_count_circuits(design),
        racks=racks,
        peak_watts=design.peak_watts,
        typical_watts=design.typical_watts,
        btu_per_hour=btu_per_hour(design.peak_watts),
        cooling_tons=cooling_tons(design.peak_watts),
        airflow_cfm=airflow_cfm(design.peak_watts, rise),
        floor_kg_per_m2=max(rack.weight_kg for rack in racks) / FOOTPRINT_M2,
        floor_m2=(1.0 if design.on_desk else _FLOOR_PER_RACK_M2) * len(racks),
        noise_dba=_add_noise_dba(design),
        inrush_amps=max_supplies * INRUSH_AMPS,
        max_supplies_per_circuit=max_supplies,
        max_simultaneous_starts=count_simultaneous_starts(pdu.breaker_amps),
    )


def _calculate_rack(design: FacilityDesign, rack: int, rise: float) -> RackRequirements:
    placed = design.room.get_rack(rack)
    peak = sum(p.device.peak_watts for p in placed)
    return RackRequirements(
        number=rack + 1,
        units_used=sum(p.device.rack_units for p in placed),
        weight_kg=weigh_rack_kg(design.room, rack),
        typical_watts=sum(p.device.typical_watts for p in placed),
        peak_watts=peak,
        btu_per_hour=btu_per_hour(peak),
        airflow_cfm=airflow_cfm(peak, rise),
    )


def _count_circuits(design: FacilityDesign) -> tuple[CircuitRequirement, ...]:
    counts = Counter((load.feed, load.pdu.circuit) for rack in design.power for load in rack.pdus)
    return tuple(
        CircuitRequirement(feed, circuit, count) for (feed, circuit), count in counts.items()
    )


def _add_noise_dba(design: FacilityDesign) -> float:
    """Add the sources by their power: two equal ones are 3 dB louder than one."""
    power = sum(
        10 ** ((placed.device.noise_dba or _SERVER_DBA) / 10)
        for placed in design.room.placed
        if not placed.device.is_switch
    )
    return 10 * math.log10(power)


@dataclass(frozen=True)
class FeedLoss:
    """The effect of a failed feed: the number of devices in each state, and the PDUs of the other feed."""

    feed: str
    full_speed: int
    slower: int
    off: int
    remaining_pdus: tuple[LoadedPdu, ...]

    @property
    def fullest_line_share(self) -> float:
        """The load of the fullest line as a share of its continuous limit; 0 if no PDU remains."""
        return max((load.fullest_line_share for load in self.remaining_pdus), default=0.0)

    @property
    def fullest_bank_share(self) -> float:
        return max((load.fullest_bank_share for load in self.remaining_pdus), default=0.0)

    @property
    def sentence(self) -> str:
        total = self.full_speed + self.slower + self.off
        if self.off == total:
            return f"If feed {self.feed} fails, everything turns off."
        outcomes = [
            (self.full_speed, "at full speed"),
            (self.slower, "slower, with fewer power supplies than they need"),
            (self.off, "off"),
        ]
        (count, state), *others = [outcome for outcome in outcomes if outcome[0]]
        devices = "devices" if total > 1 else "device"
        states = [f"{count} of {total} {devices} {state}", *(f"{n} {s}" for n, s in others)]
        return (
            f"If feed {self.feed} fails: {', '.join(states)}; the fullest line of the other feed is at"
            f" {100 * self.fullest_line_share:.0f}% of its limit."
        )


def list_feed_losses(design: FacilityDesign, rack: int | None = None) -> tuple[FeedLoss, ...]:
    """Return the effect of losing each feed, in one rack or in the whole room."""
    feeds = design.site.feeds
    placed_devices = design.room.placed if rack is None else design.room.get_rack(rack)
    rack_power = dict.fromkeys(design.power) if rack is None else [design.power[rack]]
    losses = []
    for feed in range(feeds):
        name = "AB"[feed]
        states = Counter(placed.device.find_state_without(feed, feeds) for placed in placed_devices)
        remaining = tuple(load for power in rack_power for load in power.pdus if load.feed != name)
        losses.append(
            FeedLoss(name, states["full speed"], states["slower"], states["off"], remaining)
        )
    return tuple(losses)
