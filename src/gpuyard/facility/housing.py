"""What a site's room and a colocation each charge, and how much either could feed and cool: the figures
that the planner takes from a site file."""

from dataclasses import dataclass

from gpuyard.catalog.facility import facility_costs
from gpuyard.facility.power.electricity import POWER_FACTOR, usable_va
from gpuyard.facility.site_rules import Rules
from gpuyard.specs.site import Circuit

BUILD_YEARS = 10
"""A room is written off over so long; assumed."""


@dataclass(frozen=True)
class RoomTerms:
    """One way to house machines. A figure that nobody gave is None."""

    way: str
    pue: float
    usd_per_kwh: float
    rent_usd_per_kw_month: float | None = None
    build_usd_per_kw: float | None = None


def room_terms(rules: Rules) -> tuple[RoomTerms, RoomTerms]:
    """(colocation, on premises): the site's own figures for what it is, averages for what it is not."""
    site = rules.site
    shared = site.kind == "colocation"
    averages = facility_costs()
    return (
        RoomTerms(
            way="colocation",
            pue=rules.pue if shared else averages.get("pue-new-sites").value,
            usd_per_kwh=rules.tariff_usd_per_kwh,
            rent_usd_per_kw_month=rules.colocation_usd_per_kw_month,
        ),
        RoomTerms(
            way="office" if site.kind == "office" else "on premises",
            pue=averages.get("pue-average-2023").value if shared else rules.pue,
            usd_per_kwh=rules.tariff_usd_per_kwh,
            build_usd_per_kw=site.build,
        ),
    )


def machine_watts_limits(rules: Rules) -> dict[str, float]:
    """What all machines together may draw at the site, by what sets it; empty where nothing does."""
    site = rules.site
    found: dict[str, float] = {}
    if site.cooling_power is not None:
        found["cooling"] = site.cooling_power
    if site.rack.count is not None:
        found["racks"] = site.rack.count * rules.rack_watts
    fed = [_fed(rules, feed) for feed in ("A", "B")[: site.feeds]]
    # each feed carries everything, so the weaker one counts
    if all(watts is not None for watts in fed):
        found["circuits"] = min(watts for watts in fed if watts is not None)
    return found


def _fed(rules: Rules, feed: str) -> float | None:
    """Watts of the circuits on a feed; None where there are as many as needed."""
    site = rules.site
    total = 0.0
    for circuit in site.circuits:
        if circuit.feed not in (None, feed):
            continue
        if circuit.count is None:
            return None
        shared = 1 if circuit.feed or site.feeds == 1 else 2
        total += circuit.count / shared * _watts(circuit, rules.share)
    return total


def _watts(circuit: Circuit, share: float) -> float:
    return usable_va(circuit.voltage, circuit.amps, circuit.phases, share) * POWER_FACTOR
