"""What each candidate costs over the horizon and for one finished run, by the formulas of economics; and where
bought machines would go: what a room of one's own and a colocation charge, and how much they support."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from gpuyard import units
from gpuyard.catalog.electricity import Tariff, tariff_of
from gpuyard.economics.billing import (
    HOURS_PER_MONTH,
    HOURS_PER_YEAR,
    Amounts,
    on_demand_usd,
    reserved_usd,
    spot_hours_per_useful_hour,
    spot_usd,
)
from gpuyard.economics.ownership import Owned, owned_usd
from gpuyard.errors import UserMistake
from gpuyard.facility.housing import BUILD_YEARS, HousingTerms, housing_terms, machine_watts_limits
from gpuyard.facility.site_rules import rules_for
from gpuyard.planner.offers import OfferColumns, PlannedRuns
from gpuyard.predict.table import Floats, Integers
from gpuyard.specs import Network
from gpuyard.specs import site as sites
from gpuyard.specs.plan import RESERVED_YEARS, Acquisition, Plan, PlanSite


@dataclass(frozen=True)
class PowerLimit:
    """What all machines that are acquired so may draw together."""

    acquisition: Acquisition
    watts: float  # of the machines, without cooling
    reason: str


class SiteLimit(NamedTuple):
    """How many machines of one kind a site can house, and what it lacks for more."""

    machines: int
    why: str


Housed = tuple[str, Network | None]
"""A server, and how several of them are joined."""


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
    site: sites.Site | None = None
    limits: Mapping[Housed, SiteLimit] = field(default_factory=dict)  # of what was checked there

    @property
    def houses(self) -> Acquisition:
        """Which machines would stand at the site."""
        shared = self.site is not None and self.site.kind == "colocation"
        return "colocate" if shared else "buy"

    def limit(self, what: Housed, acquisition: Acquisition) -> SiteLimit | None:
        """The narrower one: of these machines however they are joined, and joined so."""
        if acquisition != self.houses:
            return None
        found = [self.limits[key] for key in (what, (what[0], None)) if key in self.limits]
        return min(found, default=None)

    def refusal(self, what: Housed, acquisition: Acquisition, machines: int, watts: float) -> str:
        """Why so many machines, each of these watts, can't stand there; nothing if they can."""
        limit = self.limit(what, acquisition)
        if limit is not None and machines > limit.machines:
            return limit.why
        for bound, drawn in ((self.rack, watts), (self.power, machines * watts)):
            if bound is not None and bound.acquisition == acquisition and drawn > bound.watts:
                return bound.reason
        return ""

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
        site=site,
    )


@dataclass(frozen=True)
class Costs:
    """One entry a candidate."""

    run_seconds: Floats  # from start to finish, with what interruptions cost
    usd_per_run: Floats
    total_usd: Floats  # over the horizon
    clusters: Floats  # of these nodes, so many are needed side by side; 1 where rented by the run
    utilisation: Floats  # of all hours, at the mean demand; 1 where rented by the run
    watts: Floats  # of the room, for bought machines; 0 where rented
    machine_watts: Floats  # of bought machines alone, wherever they stand


@dataclass(frozen=True)
class PriceRows:
    """The candidates of one acquisition."""

    nodes: Floats
    run_hours: Floats
    usd_per_hour: Floats
    buy_usd: Floats
    network_usd: Floats  # of one cluster
    watts: Floats
    gpus: Floats
    keeping_usd: Floats
    egress_usd: Floats

    @staticmethod
    def of(columns: OfferColumns, offer: Integers, nodes: Floats, run_hours: Floats) -> "PriceRows":
        return PriceRows(
            nodes,
            run_hours,
            columns.usd_per_hour[offer],
            columns.buy_usd[offer],
            columns.network_usd(offer, nodes),
            columns.watts[offer],
            columns.gpus[offer],
            columns.keeping_usd[offer],
            columns.egress_usd[offer],
        )


def cost_of(
    plan: Plan,
    runs: PlannedRuns,
    premises: Premises,
    *,
    columns: OfferColumns,
    offer: Integers,
    nodes: Floats,
    run_hours: Floats,
) -> Costs:
    """Price every candidate: `offer` says which columns are its."""
    found = Costs(*(np.zeros(len(nodes)) for _ in range(7)))
    for code, acquisition in enumerate(plan.search.ways):
        chosen = np.flatnonzero(columns.acquisition[offer] == code)
        rows = PriceRows.of(columns, offer[chosen], nodes[chosen], run_hours[chosen])
        priced = _price(plan, runs, premises, acquisition, rows)
        for name, column in vars(priced).items():
            vars(found)[name][chosen] = column
    return found


def _price(
    plan: Plan, runs: PlannedRuns, premises: Premises, acquisition: Acquisition, rows: PriceRows
) -> Costs:
    match acquisition:
        case "on-demand":
            hours = rows.run_hours + plan.renting.start / 3600
            usd = on_demand_usd(hours, rows.nodes * rows.usd_per_hour)
            return _by_the_run(runs, rows, hours, usd)
        case "spot":
            return _spot(plan, runs, rows)
        case "buy" | "colocate" | "keep":
            return _owned(plan, runs, premises, rows, acquisition)
        case "reserved-1-year" | "reserved-3-years":
            return _reserved(plan, runs, rows, RESERVED_YEARS[acquisition])
        case "hybrid":  # has no candidates of its own
            return Costs(*(rows.nodes for _ in range(7)))


def _by_the_run(runs: PlannedRuns, rows: PriceRows, hours: Floats, usd: Floats) -> Costs:
    one, nothing = np.ones_like(hours), np.zeros_like(hours)
    total = (usd + rows.egress_usd) * runs.total + rows.keeping_usd
    return Costs(hours * 3600, total / runs.total, total, one, one, nothing, nothing)


def _spot(plan: Plan, runs: PlannedRuns, rows: PriceRows) -> Costs:
    spot = plan.spot
    rate = rows.nodes * spot.interruptions_per_hour
    checkpoint, restart = spot.checkpoint / 3600, spot.restart / 3600
    hours = rows.run_hours + plan.renting.start / 3600
    usd = spot_usd(
        hours,
        rows.nodes * rows.usd_per_hour,
        interruptions_per_hour=rate,
        checkpoint_hours=checkpoint,
        restart_hours=restart,
    )
    stretch = spot_hours_per_useful_hour(rate, checkpoint, restart)
    return _by_the_run(runs, rows, hours * stretch, usd)


def _clusters(plan: Plan, runs: PlannedRuns, run_hours: Floats) -> tuple[Floats, Floats]:
    """How many are needed for the runs of the last month, and how busy they are on average."""
    hours = HOURS_PER_MONTH * plan.owning.busy_at_most
    count = np.maximum(np.ceil(runs.peak_per_month * run_hours / hours - 1e-9), 1.0)
    busy = runs.total * run_hours / (count * runs.months * HOURS_PER_MONTH)
    return count, np.minimum(busy, 1.0)


def _reserved(plan: Plan, runs: PlannedRuns, rows: PriceRows, term_years: int) -> Costs:
    count, busy = _clusters(plan, runs, rows.run_hours)
    yearly = count * rows.nodes * rows.usd_per_hour * HOURS_PER_YEAR
    total = reserved_usd(runs.years, yearly, term_years=float(term_years), rest="pay")
    total = total + rows.keeping_usd + rows.egress_usd * runs.total
    seconds = rows.run_hours * 3600
    nothing = np.zeros_like(seconds)
    return Costs(seconds, total / runs.total, total, count, busy, nothing, nothing)


def owned_machines(
    plan: Plan,
    premises: Premises,
    rows: PriceRows,
    acquisition: Acquisition,
    *,
    clusters: Amounts,
    utilisation: Amounts,
    years: float,
) -> Owned:
    """So many clusters of bought machines, as the formulas of owning take them."""
    owning, terms = plan.owning, premises.terms(acquisition)
    machines = clusters * rows.nodes
    watts = machines * rows.watts
    built = premises.build_usd_per_kw(years) if acquisition == "buy" else 0.0
    return Owned(
        hardware_usd=machines * rows.buy_usd,
        spares_share=owning.spares,
        installation_usd=watts / 1000 * built,
        network_usd=clusters * rows.network_usd,
        watts=watts,
        idle_watts=watts * owning.idle_power,
        utilisation=utilisation,
        pue=terms.pue,
        usd_per_kwh=terms.usd_per_kwh,
        colocation_usd_per_kw_month=terms.rent_usd_per_kw_month or 0.0,
        support_share_per_year=owning.support_per_year,
        staff_hours_per_month=machines * owning.staff_hours_per_month,
        staff_usd_per_hour=owning.staff,
        gpus=machines * rows.gpus,
        usd_per_failure=owning.failure,
        value_kept_per_year=owning.value_kept_per_year,
    )


def _owned(
    plan: Plan, runs: PlannedRuns, premises: Premises, rows: PriceRows, acquisition: Acquisition
) -> Costs:
    count, busy = _clusters(plan, runs, rows.run_hours)
    owned = owned_machines(
        plan, premises, rows, acquisition, clusters=count, utilisation=busy, years=runs.years
    )
    total = owned_usd(owned, runs.years)
    watts = np.asarray(owned.watts)
    away = acquisition == "colocate"
    drawn = np.zeros_like(watts) if away else watts * premises.own.pue
    return Costs(rows.run_hours * 3600, total / runs.total, total, count, busy, drawn, watts)
