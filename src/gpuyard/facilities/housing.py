"""The cost of housing machines in colocation or on premises, and the power that a site has for them."""

from dataclasses import dataclass

from gpuyard.catalog.facility import facility_costs
from gpuyard.facilities.power.electricity import POWER_FACTOR, usable_va
from gpuyard.facilities.site_rules import SiteRules

BUILD_YEARS = 10
"""The years over which the construction of a room is depreciated; assumed."""
_HOURS_PER_MONTH = 8766 / 12


@dataclass(frozen=True)
class HousingTerms:
    """The terms of one place; None for a value that is not known."""

    where: str
    pue: float
    usd_per_kwh: float
    rent_usd_per_kw_month: float | None = None
    build_usd_per_kw: float | None = None


def find_housing_terms(rules: SiteRules) -> tuple[HousingTerms, HousingTerms]:
    """Return the terms of (colocation, on premises): the site's values for its own kind, averages for the other."""
    site = rules.site
    is_colocation = site.kind == "colocation"
    averages = facility_costs()
    return (
        HousingTerms(
            where="colocation",
            pue=rules.pue if is_colocation else averages.get("pue-new-sites").value,
            usd_per_kwh=rules.tariff.usd_per_kwh,
            rent_usd_per_kw_month=rules.colocation_usd_per_kw_month,
        ),
        HousingTerms(
            where="office" if site.kind == "office" else "on premises",
            pue=averages.get("pue-average-2023").value if is_colocation else rules.pue,
            usd_per_kwh=rules.tariff.usd_per_kwh,
            build_usd_per_kw=site.build,
        ),
    )


@dataclass(frozen=True)
class HousingCost:
    """The monthly cost of housing a cluster, without the hardware itself.

    Rent and construction follow the peak power, and energy follows the typical power. A part without a known value
    is None, and the total leaves it out.
    """

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


def find_power_limits(rules: SiteRules) -> dict[str, float]:
    """Return the watts that all machines together may draw, by the resource that sets the limit."""
    site = rules.site
    limits: dict[str, float] = {}
    if site.cooling_power is not None:
        limits["cooling"] = site.cooling_power
    if site.rack.count is not None:
        limits["racks"] = site.rack.count * rules.rack_watts
    feed_watts = [_sum_feed_watts(rules, feed) for feed in ("A", "B")[: site.feeds]]
    # each feed alone must carry everything, so the weaker one sets the limit
    if all(watts is not None for watts in feed_watts):
        limits["circuits"] = min(watts for watts in feed_watts if watts is not None)
    return limits


def _sum_feed_watts(rules: SiteRules, feed: str) -> float | None:
    """Return the watts of all circuits on a feed; None if their number is unlimited."""
    site = rules.site
    total = 0.0
    for circuit in site.circuits:
        if circuit.feed not in (None, feed):
            continue
        if circuit.count is None:
            return None
        feeds_served = 1 if circuit.feed or site.feeds == 1 else 2
        va = usable_va(circuit.voltage, circuit.amps, circuit.phases, rules.continuous_load)
        total += circuit.count / feeds_served * va * POWER_FACTOR
    return total
