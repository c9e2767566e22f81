"""Choose the circuit and the PDU that feed the racks: those with the fewest racks, then the fewest circuits."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from gpuyard.catalog import facility as tables
from gpuyard.catalog.facility import Pdu, plugs, plugs_mate
from gpuyard.errors import GpuyardError
from gpuyard.facilities.device import RackDevice
from gpuyard.facilities.power.rack_pdu import RackPdu, build_rack_pdu, build_wall_circuit
from gpuyard.facilities.power.rack_power import CannotPower, power_rack
from gpuyard.facilities.racks.packing import RackLimits
from gpuyard.facilities.site_rules import SiteRules
from gpuyard.specs.site import Circuit

MAX_PDUS_PER_RACK = 4
"""The vertical PDUs that fit in the back of a rack, over all feeds."""
_DEFAULT_WALL_CIRCUITS = 16
_MAX_CANDIDATES = 6


@dataclass(frozen=True)
class PduChoice:
    """The PDU of each feed, how many of them fit in a rack, and how many servers they power."""

    pdus: tuple[RackPdu, ...]
    per_feed: int
    servers_per_rack: int

    @property
    def model(self) -> Pdu | None:
        return self.pdus[0].model


def choose_pdus(server: RackDevice, nodes: int, rules: SiteRules, limits: RackLimits) -> PduChoice:
    """Return the best PDUs for the site's circuits. Raises GpuyardError if none can power a server."""
    reasons: list[str] = []
    best: tuple[tuple[float, ...], PduChoice] | None = None
    max_servers = min(limits.max_count(server), nodes)
    for pdus in _list_candidates(server, rules):
        per_feed = _count_per_feed(pdus, rules)
        try:
            servers, pdus_used = _count_servers(server, max_servers, pdus, per_feed)
        except CannotPower as error:
            reasons.append(str(error))
            continue
        racks = math.ceil(nodes / servers)
        model = pdus[0].model
        score = (racks, racks * pdus_used, model.rack_units if model else 0, pdus[0].usable_va)
        if best is None or score < best[0]:
            best = score, PduChoice(pdus, per_feed, servers)
    if best is None:
        reason = reasons[0] if reasons else "no PDU in the catalog fits its circuits"
        raise GpuyardError(
            f"{rules.site.name} cannot power {server.name}: {reason}. Try a site with other circuits, or"
            " name another 'pdu' in its file"
        )
    return best[1]


def _list_candidates(server: RackDevice, rules: SiteRules) -> Iterator[tuple[RackPdu, ...]]:
    """Yield one PDU per feed, all of the same model."""
    site = rules.site
    choices = [[c for c in site.circuits if c.feed in {None, "AB"[f]}] for f in range(site.feeds)]
    for first in choices[0]:
        others = [_find_same_receptacle(first, circuits) for circuits in choices[1:]]
        circuits = [first, *(other for other in others if other is not None)]
        if len(circuits) < site.feeds:
            continue
        if site.pdu is None and (site.kind == "office" or server.tower) and first.phases == 1:
            yield tuple(
                build_wall_circuit(c, rules.continuous_load, rules.region) for c in circuits
            )
        for model in _list_models(first, rules):
            yield tuple(
                build_rack_pdu(model, c, rules.continuous_load, rules.region) for c in circuits
            )


def _find_same_receptacle(circuit: Circuit, others: list[Circuit]) -> Circuit | None:
    return next((c for c in others if c.receptacle == circuit.receptacle), None)


def _list_models(circuit: Circuit, rules: SiteRules) -> list[Pdu]:
    if rules.site.pdu is not None:
        named = tables.pdus().get(rules.site.pdu)
        if named.inlet is None:
            raise GpuyardError(
                f"the catalog does not list the plug of {named.name}; name another 'pdu'"
            )
        if not plugs_mate(named.inlet, circuit.receptacle):
            receptacle = plugs().get(circuit.receptacle).name
            raise GpuyardError(
                f"the {plugs().get(named.inlet).name} of {named.name} does not fit the {receptacle} of"
                f" {rules.site.name}; name another 'pdu' or 'receptacle' in the site file"
            )
        return [named]
    models = [
        pdu for pdu in tables.pdus()
        if pdu.kind == "pdu" and pdu.inlets == 1 and pdu.region in {None, rules.region}
        and pdu.inlet and plugs_mate(pdu.inlet, circuit.receptacle)
    ]  # fmt: skip
    models.sort(key=lambda pdu: (pdu.rack_units > 0, -pdu.c19 - pdu.c39, -pdu.c13, pdu.id))
    return models[:_MAX_CANDIDATES]


def _count_per_feed(pdus: tuple[RackPdu, ...], rules: SiteRules) -> int:
    model = pdus[0].model
    if model is None:
        return pdus[0].circuit.count or _DEFAULT_WALL_CIRCUITS
    return MAX_PDUS_PER_RACK // rules.site.feeds if model.rack_units == 0 else 1


def _count_servers(
    server: RackDevice, max_servers: int, pdus: tuple[RackPdu, ...], per_feed: int
) -> tuple[int, int]:
    """Return (servers per rack that these PDUs power, PDUs used). Raises CannotPower if not even one."""
    for count in range(max_servers, 1, -1):
        try:
            return count, len(power_rack(((server, count),), pdus, per_feed).pdus)
        except CannotPower:
            continue
    return 1, len(power_rack(((server, 1),), pdus, per_feed).pdus)
