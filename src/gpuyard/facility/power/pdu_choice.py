"""Which circuit and which PDU feed the racks: those that take the fewest racks, then the fewest circuits."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from gpuyard.catalog import facility as tables
from gpuyard.catalog.facility import Pdu, fits, plugs
from gpuyard.errors import GpuyardError
from gpuyard.facility.device import RackDevice
from gpuyard.facility.power.rack_pdu import RackPdu, rack_pdu, wall_circuit
from gpuyard.facility.power.rack_power import CannotPower, power_rack
from gpuyard.facility.racks.packing import Limits
from gpuyard.facility.site_rules import SiteRules
from gpuyard.specs.site import Circuit

PDUS_PER_RACK = 4
"""That hang in the back of it, over all feeds."""
_WALL_CIRCUITS = 16
_CANDIDATES = 6


@dataclass(frozen=True)
class PduChoice:
    """The PDU of each feed, how many of it a rack has room for, and how many servers they carry."""

    pdus: tuple[RackPdu, ...]
    per_feed: int
    servers_per_rack: int

    @property
    def model(self) -> Pdu | None:
        return self.pdus[0].model


def choose_pdus(server: RackDevice, nodes: int, rules: SiteRules, limits: Limits) -> PduChoice:
    """The best of all that fit the site's circuits; a sentence where none can feed one server."""
    reasons: list[str] = []
    best: tuple[tuple[float, ...], PduChoice] | None = None
    for pdus in _candidates(server, rules):
        per_feed = _most_per_feed(pdus, rules)
        most = min(limits.most_of(server), nodes)
        found = _most_servers(server, most, pdus, per_feed)
        if isinstance(found, str):
            reasons.append(found)
            continue
        count, used = found
        racks = math.ceil(nodes / count)
        model = pdus[0].model
        score = (racks, racks * used, model.rack_units if model else 0, pdus[0].usable_va)
        if best is None or score < best[0]:
            best = score, PduChoice(pdus, per_feed, count)
    if best is None:
        raise GpuyardError(_cannot(server, rules, reasons))
    return best[1]


def _cannot(server: RackDevice, rules: SiteRules, reasons: list[str]) -> str:
    why = reasons[0] if reasons else "no PDU of the catalog fits its circuits"
    return (
        f"{rules.site.name} can't power {server.name}: {why}. Try a site with other circuits, or name"
        " another 'pdu' in its file"
    )


def _candidates(server: RackDevice, rules: SiteRules) -> Iterator[tuple[RackPdu, ...]]:
    """One PDU for each feed, of the same model."""
    site = rules.site
    choices = [[c for c in site.circuits if c.feed in {None, "AB"[f]}] for f in range(site.feeds)]
    for first in choices[0]:
        others = [_alike(first, circuits) for circuits in choices[1:]]
        circuits = [first, *(other for other in others if other is not None)]
        if len(circuits) < site.feeds:
            continue
        if site.pdu is None and (site.kind == "office" or server.tower) and first.phases == 1:
            yield tuple(wall_circuit(c, rules.continuous_load, rules.region) for c in circuits)
        for model in _models_for(first, rules):
            yield tuple(rack_pdu(model, c, rules.continuous_load, rules.region) for c in circuits)


def _alike(circuit: Circuit, others: list[Circuit]) -> Circuit | None:
    return next((c for c in others if c.receptacle == circuit.receptacle), None)


def _models_for(circuit: Circuit, rules: SiteRules) -> list[Pdu]:
    if rules.site.pdu is not None:
        named = tables.pdus().get(rules.site.pdu)
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
        pdu for pdu in tables.pdus()
        if pdu.kind == "pdu" and pdu.inlets == 1 and pdu.inlet and fits(pdu.inlet, circuit.receptacle)
    ]  # fmt: skip
    fitting.sort(key=lambda pdu: (pdu.rack_units > 0, -pdu.c19 - pdu.c39, -pdu.c13, pdu.id))
    return fitting[:_CANDIDATES]


def _most_per_feed(pdus: tuple[RackPdu, ...], rules: SiteRules) -> int:
    model = pdus[0].model
    if model is None:
        return pdus[0].circuit.count or _WALL_CIRCUITS
    return PDUS_PER_RACK // rules.site.feeds if model.rack_units == 0 else 1


def _most_servers(
    server: RackDevice, most: int, pdus: tuple[RackPdu, ...], per_feed: int
) -> tuple[int, int] | str:
    """Servers of one rack that these PDUs carry and how many PDUs that takes, or why not even one."""
    why = ""
    for count in range(most, 0, -1):
        try:
            power = power_rack(((server, count),), pdus, per_feed)
        except CannotPower as reason:
            why = str(reason)
        else:
            return count, len(power.pdus)
    return why
