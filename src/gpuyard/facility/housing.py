"""What it costs to house machines in a colocation and in a room of one's own, and how much power a site has
for them: the figures that the planner takes from a site file."""

from dataclasses import dataclass

from gpuyard.catalog.facility import facility_costs
from gpuyard.facility.power.electricity import POWER_FACTOR, usable_va
from gpuyard.facility.site_rules import SiteRules

BUILD_YEARS = 10
"""A room is written off over so long; assumed."""
_HOURS_PER_MONTH = 8766 / 12


@dataclass(frozen=True)
class HousingTerms:
    """What one place charges. A figure that nobody gave is None."""

    where: str
    pue: float
    usd_per_kwh: float
    rent_usd_per_kw_month: float | None = None
    build_usd_per_kw: float | None = None


def housing_terms(rules: SiteRules) -> tuple[HousingTerms, HousingTerms]:
    """(colocation, on premises): the site's own figures for what it is, averages for what it is not."""
    site = rules.site
    shared = site.kind == "colocation"
    averages = facility_costs()
    return (
        HousingTerms(
            where="colocation",
            pue=rules.pue if shared else averages.get("pue-new-sites").value,
            usd_per_kwh=rules.tariff.usd_per_kwh,
            rent_usd_per_kw_month=rules.colocation_usd_per_kw_month,
        ),
        HousingTerms(
            where="office" if site.kind == "office" else "on premises",
            pue=averages.get("pue-average-2023").value if shared else rules.pue,
            usd_per_kwh=rules.tariff.usd_per_kwh,
            build_usd_per_kw=site.build,
        ),
    )


@dataclass(frozen=True)
class HousingCost:
    """What housing a cluster costs a month, without the hardware itself: rent and building by the kW at
    peak, energy by what is typically drawn. A part that nobody gave a figure for is None and not in the total."""

    terms: HousingTerms
    peak_kw: float
    typical_kw: float

    @property
    def energy_usd_per_month(self) -> float:
        return self.typical_kw * _HOURS_PER_MONTH * self.terms.pue * self.terms.usd_per_kwh

    @property
    def rent_usd_per_month(self) -> float | None:
        rent = self.terms.rent_usd_per_kw_month
        return None if rent is None else self.peak_kw * rent

    @property
    def build_usd(self) -> float | None:
        build = self.terms.build_usd_per_kw
        return None if build is None else build * self.peak_kw

    @property
    def build_usd_per_month(self) -> float | None:
        return None if self.build_usd is None else self.build_usd / (BUILD_YEARS * 12)

    @property
    def usd_per_month(self) -> float:
        parts = (self.energy_usd_per_month, self.rent_usd_per_month, self.build_usd_per_month)
        return sum(part for part in parts if part is not None)

    @property
    def complete(self) -> bool:
        return self.rent_usd_per_month is not None or self.build_usd_per_month is not None


def machine_watts_limits(rules: SiteRules) -> dict[str, float]:
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


def _fed(rules: SiteRules, feed: str) -> float | None:
    """Watts of the circuits on a feed; None where there are as many as needed."""
    site = rules.site
    total = 0.0
    for circuit in site.circuits:
        if circuit.feed not in (None, feed):
            continue
        if circuit.count is None:
            return None
        shared = 1 if circuit.feed or site.feeds == 1 else 2
        va = usable_va(circuit.voltage, circuit.amps, circuit.phases, rules.continuous_load)
        total += circuit.count / shared * va * POWER_FACTOR
    return total
