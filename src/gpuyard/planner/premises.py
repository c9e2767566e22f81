"""Where bought machines would go: what a room of one's own and a colocation charge, and how much they support."""

from dataclasses import dataclass

from gpuyard import units
from gpuyard.catalog.electricity import Tariff, tariff_of
from gpuyard.errors import UserMistake
from gpuyard.facility.housing import BUILD_YEARS, HousingTerms, housing_terms, machine_watts_limits
from gpuyard.facility.site_rules import rules_for
from gpuyard.specs import site as sites
from gpuyard.specs.plan import Acquisition, Plan, PlanSite


@dataclass(frozen=True)
class PowerLimit:
    """What all machines that are acquired so may draw together."""

    acquisition: Acquisition
    watts: float  # of the machines, without cooling
    reason: str


@dataclass(frozen=True)
class Premises:
    """The terms of both, and the limits of the one that the plan's site is."""

    name: str | None  # of a site file
    own: HousingTerms
    shared: HousingTerms
    power: PowerLimit | None
    rack: PowerLimit | None  # of one machine
    assumed: tuple[str, ...]
    tariff: Tariff

    def terms(self, acquisition: Acquisition) -> HousingTerms:
        return self.shared if acquisition == "colocate" else self.own

    def build_usd_per_kw(self, years: float) -> float:
        """What a room of one's own costs over the horizon: its share of the years it is written off over."""
        return (self.own.build_usd_per_kw or 0.0) * min(1.0, years / BUILD_YEARS)

    @property
    def room_watts(self) -> float | None:
        """What the building gives, with cooling; None where nobody said, or where it is somebody else's."""
        if self.power is None or self.power.acquisition != "buy":
            return None
        return self.power.watts * self.own.pue


def premises_of(plan: Plan, site: sites.Site | None = None) -> Premises:
    """A site file's figures, or those of the plan."""
    if site is not None:
        return _from_file(site)
    if isinstance(plan.site, str):
        raise UserMistake(f"the site of {plan.name} is a file, {plan.site}, and was not read")
    return _from_plan(plan.site)


def _from_plan(site: PlanSite) -> Premises:
    limit = None
    if site.power is not None:
        reason = f"draws more than the {units.format_watts(site.power)} of the site"
        limit = PowerLimit("buy", site.power / site.pue, reason)
    tariff = tariff_of(
        site.electricity, site.region or site.country, "'site.country' or 'site.electricity'"
    )
    return Premises(
        name=None,
        own=HousingTerms("on premises", site.pue, tariff.usd_per_kwh),
        shared=HousingTerms(
            "colocation",
            site.colocation_pue,
            tariff.usd_per_kwh,
            rent_usd_per_kw_month=site.colocation,
        ),
        power=limit,
        rack=None,
        assumed=(),
        tariff=tariff,
    )


def _from_file(site: sites.Site) -> Premises:
    rules = rules_for(site)
    shared, own = housing_terms(rules)
    acquisition: Acquisition = "colocate" if site.kind == "colocation" else "buy"
    limits = machine_watts_limits(rules)
    power = None
    if limits:
        what, watts = min(limits.items(), key=lambda limit: limit[1])
        reason = f"draws more than the {units.format_watts(watts)} that the {what} of {site.name}"
        power = PowerLimit(
            acquisition, watts, f"{reason} {'supports' if what == 'cooling' else 'support'}"
        )
    rack = units.format_watts(rules.rack_watts)
    return Premises(
        name=site.name,
        own=own,
        shared=shared,
        power=power,
        rack=PowerLimit(
            acquisition, rules.rack_watts, f"a machine draws more than the {rack} of a rack there"
        ),
        assumed=rules.assumed,
        tariff=rules.tariff,
    )
