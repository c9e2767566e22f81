"""A rack PDU on its circuit, or a bare wall circuit, with the limits of its lines, legs, banks, and outlets.

Outlets are grouped in banks, each behind its own breaker. A leg has as many banks as its current needs, and outlets are
spread evenly over them. No source lists which outlet belongs to which bank, so this is derived.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from gpuyard.catalog.facility import Pdu, Region, plugs
from gpuyard.facilities.power.electricity import leg_volts, line_amps, usable_va
from gpuyard.specs.site import Circuit

_BANK_AMPS: Mapping[Region, float] = {"north-america": 20.0, "iec": 16.0}
_WALL_OUTLETS = 2  # of a duplex receptacle
_NORTH_AMERICA = frozenset({"US", "CA", "MX", "JP", "TW", "PH"})


def find_region(country: str) -> Region:
    return "north-america" if country in _NORTH_AMERICA else "iec"


@dataclass(frozen=True)
class Bank:
    """Outlets behind one breaker, all on one leg."""

    leg: int
    outlets: tuple[tuple[str, int], ...]
    usable_amps: float


@dataclass(frozen=True)
class RackPdu:
    """A PDU, or the wall outlets, on one circuit."""

    name: str
    model: Pdu | None
    circuit: Circuit
    continuous_load: float
    region: Region
    banks: tuple[Bank, ...]

    @property
    def legs(self) -> int:
        return self.circuit.phases

    @property
    def breaker_amps(self) -> float:
        """The rating of the circuit's breaker, or of the PDU's plug if that is lower."""
        if self.model is None or self.model.inlet is None:
            return self.circuit.amps
        rated = plugs().get(self.model.inlet).amps(self.region)
        return min(self.circuit.amps, rated) if rated is not None else self.circuit.amps

    @property
    def usable_line_amps(self) -> float:
        usable = self.breaker_amps * self.continuous_load
        limit = self.model.continuous_amps if self.model else None
        return usable if limit is None else min(usable, limit)

    @property
    def usable_va(self) -> float:
        return usable_va(self.circuit.voltage, self.usable_line_amps, self.circuit.phases, 1.0)

    @property
    def outlet_volts(self) -> float:
        return leg_volts(self.circuit.voltage, self.circuit.phases)

    def line_amps(self, leg_va: tuple[float, ...]) -> tuple[float, ...]:
        return line_amps(tuple(va / self.outlet_volts for va in leg_va), self.circuit.voltage)

    def outlet_amps(self, face: str) -> float:
        """Return the current that one outlet may carry continuously."""
        rated = plugs().get("c19" if face == "c39" else face).amps(self.region)
        return (rated or 0.0) * self.continuous_load

    def count_outlets(self, face: str) -> int:
        return sum(count for bank in self.banks for name, count in bank.outlets if name == face)


def build_wall_circuit(circuit: Circuit, continuous_load: float, region: Region) -> RackPdu:
    """Return a receptacle in the wall: one bank, which is the circuit itself."""
    name = f"{plugs().get(circuit.receptacle).name} in the wall"
    bank = Bank(0, ((circuit.receptacle, _WALL_OUTLETS),), circuit.amps * continuous_load)
    return RackPdu(name, None, circuit, continuous_load, region, (bank,))


def build_rack_pdu(model: Pdu, circuit: Circuit, continuous_load: float, region: Region) -> RackPdu:
    """Return a PDU model plugged into a circuit."""
    bare = RackPdu(model.name, model, circuit, continuous_load, region, ())
    counts = {"c13": model.c13, "c15": model.c15, "c19": model.c19, "c39": model.c39}
    for other in filter(None, model.other_outlets.split(";")):
        face, _, count = other.partition(":")
        volts = plugs().get(face).volts if face in plugs() else 0
        if volts >= bare.outlet_volts:  # a 120 V outlet in a 208 V unit has its own voltage
            counts[face] = counts.get(face, 0) + int(count)
    bank_amps = _BANK_AMPS[region] * continuous_load
    delta = circuit.phases == 3 and circuit.voltage <= 250
    leg_amps = bare.usable_line_amps / (math.sqrt(3) if delta else 1.0)
    per_leg = max(math.ceil(leg_amps / bank_amps - 1e-9), 1)
    total = per_leg * bare.legs
    banks = tuple(
        Bank(
            index % bare.legs,
            tuple((face, _share(count, total, index)) for face, count in counts.items() if count),
            min(bank_amps, bare.usable_line_amps),
        )
        for index in range(total)
    )
    return RackPdu(model.name, model, circuit, continuous_load, region, banks)


def _share(count: int, banks: int, index: int) -> int:
    return count // banks + (1 if index < count % banks else 0)
