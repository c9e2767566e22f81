"""Which circuit and which PDU feed the racks: those that take the fewest racks, then the fewest circuits."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from gpuyard.catalog.facility import Pdu, fits, pdus, plugs
from gpuyard.errors import GpuyardError
from gpuyard.facility.device import Device
from gpuyard.facility.power.rack_pdu import Strip, pdu_on, wall_circuit
from gpuyard.facility.power.rack_power import CannotPower, power_rack
from gpuyard.facility.racks.packing import Limits
from gpuyard.facility.site_rules import Rules
from gpuyard.specs.site import Circuit

PLACES = 4
"""PDUs that hang in the back of one rack, over all feeds."""
_WALL_PLACES = 16
_CANDIDATES = 6


@dataclass(frozen=True)
class Feeding:
    """The strip of each feed, how many of it a rack has room for, and how many servers that carries."""

    strips: tuple[Strip, ...]
    places: int
    servers_per_rack: int

    @property
    def pdu(self) -> Pdu | None:
        return self.strips[0].pdu


def choose_feeding(server: Device, nodes: int, rules: Rules, limits: Limits) -> Feeding:
    """The best of all that fit the site's circuits; a sentence where none can feed one server."""
    reasons: list[str] = []
    best: tuple[tuple[float, ...], Feeding] | None = None
    for strips in _candidates(server, rules):
        places = _places(strips, rules)
        most = min(limits.most_of(server), nodes)
        found = _most_servers(server, most, strips, places)
        if isinstance(found, str):
            reasons.append(found)
            continue
        count, used = found
        racks = math.ceil(nodes / count)
        pdu = strips[0].pdu
        score = (racks, racks * used, pdu.rack_units if pdu else 0, strips[0].usable_va)
        if best is None or score < best[0]:
            best = score, Feeding(strips, places, count)
    if best is None:
        raise GpuyardError(_cannot(server, rules, reasons))
    return best[1]


def _cannot(server: Device, rules: Rules, reasons: list[str]) -> str:
    why = reasons[0] if reasons else "no PDU of the catalog fits its circuits"
    return (
        f"{rules.site.name} can't power {server.name}: {why}. Try a site with other circuits, or name"
        " another 'pdu' in its file"
    )


def _candidates(server: Device, rules: Rules) -> Iterator[tuple[Strip, ...]]:
    """One strip a feed; every feed gets the same kind of PDU."""
    site = rules.site
    choices = [[c for c in site.circuits if c.feed in {None, "AB"[f]}] for f in range(site.feeds)]
    for first in choices[0]:
        others = [_alike(first, circuits) for circuits in choices[1:]]
        circuits = [first, *(other for other in others if other is not None)]
        if len(circuits) < site.feeds:
            continue
        if site.pdu is None and (site.kind == "office" or server.tower) and first.phases == 1:
            yield tuple(wall_circuit(c, rules.share, rules.region) for c in circuits)
        for pdu in _pdus_for(first, rules):
            yield tuple(pdu_on(pdu, c, rules.share, rules.region) for c in circuits)


def _alike(circuit: Circuit, others: list[Circuit]) -> Circuit | None:
    return next((c for c in others if c.receptacle == circuit.receptacle), None)


def _pdus_for(circuit: Circuit, rules: Rules) -> list[Pdu]:
    if rules.site.pdu is not None:
        named = pdus().get(rules.site.pdu)
        if named.inlet is None:
            raise GpuyardError(
                f"the catalog does not know what plug {named.name} has; name another 'pdu'"
            )
        if not fits(named.inlet, circuit.receptacle):
            receptacle = plugs().get(circuit.receptacle).name
            raise GpuyardError(
                f"the {plugs().get(named.inlet).name} of {named.name} does not fit the {receptacle} of"
                f" {rules.site.name}"
            )
        return [named]
    fitting = [
        pdu for pdu in pdus()
        if pdu.kind == "pdu" and pdu.inlets == 1 and pdu.inlet and fits(pdu.inlet, circuit.receptacle)
    ]  # fmt: skip
    fitting.sort(key=lambda pdu: (pdu.rack_units > 0, -pdu.c19 - pdu.c39, -pdu.c13, pdu.id))
    return fitting[:_CANDIDATES]


def _places(strips: tuple[Strip, ...], rules: Rules) -> int:
    pdu = strips[0].pdu
    if pdu is None:
        return strips[0].circuit.count or _WALL_PLACES
    return PLACES // rules.site.feeds if pdu.rack_units == 0 else 1


def _most_servers(
    server: Device, most: int, strips: tuple[Strip, ...], places: int
) -> tuple[int, int] | str:
    """Servers of one rack that these strips carry and how many strips that takes, or why not even one."""
    why = ""
    for count in range(most, 0, -1):
        try:
            power = power_rack(((server, count),), strips, places)
        except CannotPower as reason:
            why = str(reason)
        else:
            return count, len(power.strips)
    return why
