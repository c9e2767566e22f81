"""The cost of each candidate over the horizon and per finished run, by the formulas of `gpuyard.economics`.

`Premises` describes the two places for bought machines, an own room and a colocation: their prices and their limits.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from gpuyard import units
from gpuyard.catalog.electricity import Tariff, select_tariff
from gpuyard.economics.billing import (
    HOURS_PER_MONTH,
    HOURS_PER_YEAR,
    Amounts,
    on_demand_usd,
    reserved_usd,
)
from gpuyard.economics.goodput import hours_per_useful_hour, spot_usd
from gpuyard.economics.ownership import OwnedHardware, owned_usd
from gpuyard.errors import UserMistake
from gpuyard.facilities.housing import (
    BUILD_YEARS,
    HousingTerms,
    find_housing_terms,
    find_power_limits,
)
from gpuyard.facilities.site_rules import resolve_site_rules
from gpuyard.planner.offers import OfferColumns, PlannedRuns
from gpuyard.predictor.table import Floats, Integers
from gpuyard.specs import Network
from gpuyard.specs import site as sites
from gpuyard.specs.plan import Plan
from gpuyard.specs.plan_candidates import RESERVED_YEARS, Acquisition
from gpuyard.specs.plan_costs import PlanSite


@dataclass(frozen=True)
class PowerLimit:
    """The power that machines acquired in one way may draw."""

    acquisition: Acquisition
    watts: float  # without cooling
    reason: str


class SiteLimit(NamedTuple):
    """The number of machines of one kind that a site can house, and why it cannot house more."""

    machines: int
    why: str


HousingKey = tuple[str, Network | None]
"""The id of a server, and the network between several of them."""


@dataclass(frozen=True)
class Premises:
    """The terms of an own room and of a colocation, and the limits of whichever the plan's site is."""

    name: str | None  # of a site file
    on_premises: HousingTerms
    colocation: HousingTerms
    power: PowerLimit | None  # of all machines together
    rack: PowerLimit | None  # of one machine
    assumed: tuple[str, ...]
    tariff: Tariff
    site: sites.Site | None = None
    limits: Mapping[HousingKey, SiteLimit] = field(
        default_factory=dict
    )  # of the machines checked so far

    @property
    def site_acquisition(self) -> Acquisition:
        """The acquisition of machines that stand at the site."""
        colocated = self.site is not None and self.site.kind == "colocation"
        return "colocate" if colocated else "buy"

    def find_limit(self, key: HousingKey, acquisition: Acquisition) -> SiteLimit | None:
        """Return the narrower limit: for these machines with any network, or with this one."""
        if acquisition != self.site_acquisition:
            return None
        server, _ = key
        limits = [self.limits[k] for k in (key, (server, None)) if k in self.limits]
        return min(limits, default=None)

    def find_refusal(
        self, key: HousingKey, acquisition: Acquisition, machines: int, watts: float
    ) -> str:
        """Explain why this many machines, each of these watts, cannot stand there; empty if they can."""
        limit = self.find_limit(key, acquisition)
        if limit is not None and machines > limit.machines:
            return limit.why
        for bound, drawn in ((self.rack, watts), (self.power, machines * watts)):
            if bound is not None and bound.acquisition == acquisition and drawn > bound.watts:
                return bound.reason
        return ""

    def select_terms(self, acquisition: Acquisition) -> HousingTerms:
        return self.colocation if acquisition == "colocate" else self.on_premises

    def build_usd_per_kw(self, years: float) -> float:
        """Return the cost of building an own room over the horizon, written off over `BUILD_YEARS`."""
        return (self.on_premises.build_usd_per_kw or 0.0) * min(1.0, years / BUILD_YEARS)

    @property
    def room_watts(self) -> float | None:
        """The power of an own building, including cooling; None if it is unknown or a colocation."""
        if self.power is None or self.power.acquisition != "buy":
            return None
        return self.power.watts * self.on_premises.pue


def create_premises(plan: Plan, site: sites.Site | None = None) -> Premises:
    """Describe the premises from a site file or from the plan's own site."""
    if site is not None:
        return _premises_from_file(site)
    if isinstance(plan.site, str):
        raise UserMistake(f"the site of {plan.name} is a file, {plan.site}, which was not read")
    return _premises_from_plan(plan.site)


def _premises_from_plan(site: PlanSite) -> Premises:
    limit = None
    if site.power is not None:
        reason = f"draws more than the {units.format_watts(site.power)} of the site"
        limit = PowerLimit("buy", site.power / site.pue, reason)
    tariff = select_tariff(
        site.electricity, site.region or site.country, "'site.country' or 'site.electricity'"
    )
    return Premises(
        name=None,
        on_premises=HousingTerms("on premises", site.pue, tariff.usd_per_kwh),
        colocation=HousingTerms(
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


def _premises_from_file(site: sites.Site) -> Premises:
    rules = resolve_site_rules(site)
    colocation, on_premises = find_housing_terms(rules)
    acquisition: Acquisition = "colocate" if site.kind == "colocation" else "buy"
    limits = find_power_limits(rules)
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
        on_premises=on_premises,
        colocation=colocation,
        power=power,
        rack=PowerLimit(
            acquisition, rules.rack_watts, f"a machine draws more than the {rack} of a rack there"
        ),
        assumed=rules.assumptions,
        tariff=rules.tariff,
        site=site,
    )


@dataclass(frozen=True)
class Costs:
    """The costs of candidates, one entry per candidate."""

    run_seconds: Floats  # from start to finish, including interruptions
    usd_per_run: Floats
    total_usd: Floats  # over the horizon
    clusters: Floats  # needed side by side; 1 if rented by the run
    utilization: Floats  # share of all hours at the mean demand; 1 if rented by the run
    watts: (
        Floats  # of the own room, including cooling, for bought machines; 0 if rented or colocated
    )
    machine_watts: Floats  # of bought machines alone, wherever they stand


@dataclass(frozen=True)
class PriceRows:
    """The inputs of the price formulas, one entry per candidate."""

    nodes: Floats
    run_hours: Floats
    usd_per_hour: Floats
    buy_usd: Floats
    network_usd: Floats  # of one cluster
    watts: Floats
    gpus: Floats
    spot_interruptions_per_hour: Floats  # of one machine
    data_storage_usd: Floats
    egress_usd: Floats

    @staticmethod
    def from_columns(
        columns: OfferColumns, offer: Integers, nodes: Floats, run_hours: Floats
    ) -> "PriceRows":
        return PriceRows(
            nodes,
            run_hours,
            columns.usd_per_hour[offer],
            columns.buy_usd[offer],
            columns.network_usd(offer, nodes),
            columns.watts[offer],
            columns.gpus[offer],
            columns.spot_interruptions_per_hour[offer],
            columns.data_storage_usd[offer],
            columns.egress_usd[offer],
        )


def price_candidates(
    plan: Plan,
    runs: PlannedRuns,
    premises: Premises,
    *,
    columns: OfferColumns,
    offer: Integers,
    nodes: Floats,
    run_hours: Floats,
) -> Costs:
    """Price every candidate; `offer` is its index into the columns."""
    costs = Costs(*(np.zeros(len(nodes)) for _ in range(7)))
    for code, acquisition in enumerate(plan.search.ways):
        chosen = np.flatnonzero(columns.acquisition[offer] == code)
        rows = PriceRows.from_columns(columns, offer[chosen], nodes[chosen], run_hours[chosen])
        priced = _price_rows(plan, runs, premises, acquisition, rows)
        for name, column in vars(priced).items():
            vars(costs)[name][chosen] = column
    return costs


def _price_rows(
    plan: Plan, runs: PlannedRuns, premises: Premises, acquisition: Acquisition, rows: PriceRows
) -> Costs:
    match acquisition:
        case "on-demand":
            hours = rows.run_hours + plan.renting.start / 3600
            usd = on_demand_usd(hours, rows.nodes * rows.usd_per_hour)
            return _price_per_run(runs, rows, hours, usd)
        case "spot":
            return _price_spot(plan, runs, rows)
        case "buy" | "colocate" | "keep":
            return _price_owned(plan, runs, premises, rows, acquisition)
        case "reserved-1-year" | "reserved-3-years":
            return _price_reserved(plan, runs, rows, RESERVED_YEARS[acquisition])
        case "hybrid":  # combines candidates of other acquisitions, so there are no rows
            return Costs(*(rows.nodes for _ in range(7)))


def _price_per_run(runs: PlannedRuns, rows: PriceRows, hours: Floats, usd: Floats) -> Costs:
    ones, zeros = np.ones_like(hours), np.zeros_like(hours)
    total = (usd + rows.egress_usd) * runs.total + rows.data_storage_usd
    return Costs(hours * 3600, total / runs.total, total, ones, ones, zeros, zeros)


def _price_spot(plan: Plan, runs: PlannedRuns, rows: PriceRows) -> Costs:
    spot = plan.spot
    per_node = spot.interruptions_per_hour
    rate = rows.nodes * (rows.spot_interruptions_per_hour if per_node is None else per_node)
    checkpoint, restart = spot.checkpoint / 3600, spot.restart / 3600
    hours = rows.run_hours + plan.renting.start / 3600
    usd = spot_usd(
        hours,
        rows.nodes * rows.usd_per_hour,
        interruptions_per_hour=rate,
        checkpoint_hours=checkpoint,
        restart_hours=restart,
    )
    stretch = hours_per_useful_hour(rate, checkpoint, restart)
    return _price_per_run(runs, rows, hours * stretch, usd)


def _count_clusters(plan: Plan, runs: PlannedRuns, run_hours: Floats) -> tuple[Floats, Floats]:
    """Return the clusters needed for the runs of the busiest month, and their mean utilization."""
    hours = HOURS_PER_MONTH * plan.owning.busy_at_most
    count = np.maximum(np.ceil(runs.peak_per_month * run_hours / hours - 1e-9), 1.0)
    busy = runs.total * run_hours / (count * runs.months * HOURS_PER_MONTH)
    return count, np.minimum(busy, 1.0)


def _price_reserved(plan: Plan, runs: PlannedRuns, rows: PriceRows, term_years: int) -> Costs:
    count, busy = _count_clusters(plan, runs, rows.run_hours)
    yearly = count * rows.nodes * rows.usd_per_hour * HOURS_PER_YEAR
    total = reserved_usd(runs.years, yearly, term_years=float(term_years), rest="pay")
    total = total + rows.data_storage_usd + rows.egress_usd * runs.total
    seconds = rows.run_hours * 3600
    zeros = np.zeros_like(seconds)
    return Costs(seconds, total / runs.total, total, count, busy, zeros, zeros)


def describe_owned_machines(
    plan: Plan,
    premises: Premises,
    rows: PriceRows,
    acquisition: Acquisition,
    *,
    clusters: Amounts,
    utilization: Amounts,
    years: float,
) -> OwnedHardware:
    """Describe clusters of owned machines as input of the ownership formulas."""
    owning, terms = plan.owning, premises.select_terms(acquisition)
    machines = clusters * rows.nodes
    watts = machines * rows.watts
    build_usd_per_kw = premises.build_usd_per_kw(years) if acquisition == "buy" else 0.0
    return OwnedHardware(
        hardware_usd=machines * rows.buy_usd,
        spares_share=owning.spares,
        installation_usd=watts / 1000 * build_usd_per_kw,
        network_usd=clusters * rows.network_usd,
        watts=watts,
        idle_watts=watts * owning.idle_power,
        utilization=utilization,
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


def _price_owned(
    plan: Plan, runs: PlannedRuns, premises: Premises, rows: PriceRows, acquisition: Acquisition
) -> Costs:
    count, busy = _count_clusters(plan, runs, rows.run_hours)
    owned = describe_owned_machines(
        plan, premises, rows, acquisition, clusters=count, utilization=busy, years=runs.years
    )
    total = owned_usd(owned, runs.years)
    watts = np.asarray(owned.watts)
    in_own_room = acquisition != "colocate"
    room_watts = watts * premises.on_premises.pue if in_own_room else np.zeros_like(watts)
    return Costs(rows.run_hours * 3600, total / runs.total, total, count, busy, room_watts, watts)
