"""What each candidate costs over the horizon and for one finished run, by the formulas of economics."""

from dataclasses import dataclass

import numpy as np

from gpuyard.economics import (
    Owned,
    on_demand_usd,
    owned_usd,
    reserved_usd,
    spot_hours_per_useful_hour,
    spot_usd,
)
from gpuyard.economics.amounts import HOURS_PER_MONTH, HOURS_PER_YEAR
from gpuyard.planner.demand import Demand
from gpuyard.planner.offers import OfferColumns
from gpuyard.planner.throughput import Integers
from gpuyard.predict.step import Floats
from gpuyard.specs import Plan, Way
from gpuyard.specs.plan import RESERVED_YEARS


@dataclass(frozen=True)
class Costs:
    """One entry a candidate."""

    run_seconds: Floats  # from start to finish, with what interruptions cost
    usd_per_run: Floats
    total_usd: Floats  # over the horizon
    clusters: Floats  # of these nodes, so many are needed side by side; 1 where rented by the run
    utilisation: Floats  # of all hours, at the mean demand; 1 where rented by the run
    watts: Floats  # of the room, for bought machines; 0 where rented


@dataclass(frozen=True)
class _Rows:
    """The candidates of one way."""

    nodes: Floats
    run_hours: Floats
    usd_per_hour: Floats
    buy_usd: Floats
    port_usd: Floats
    watts: Floats
    gpus: Floats


def cost_of(
    plan: Plan,
    demand: Demand,
    *,
    columns: OfferColumns,
    offer: Integers,
    nodes: Floats,
    run_hours: Floats,
) -> Costs:
    """Price every candidate: `offer` says which columns are its."""
    found = Costs(*(np.zeros(len(nodes)) for _ in range(6)))
    for code, way in enumerate(plan.search.ways):
        chosen = np.flatnonzero(columns.way[offer] == code)
        at = offer[chosen]
        rows = _Rows(
            nodes[chosen],
            run_hours[chosen],
            columns.usd_per_hour[at],
            columns.buy_usd[at],
            columns.port_usd[at],
            columns.watts[at],
            columns.gpus[at],
        )
        priced = _price(plan, demand, way, rows)
        for name, column in vars(priced).items():
            vars(found)[name][chosen] = column
    return found


def _price(plan: Plan, demand: Demand, way: Way, rows: _Rows) -> Costs:
    match way:
        case "on-demand":
            hours = rows.run_hours + plan.renting.start / 3600
            usd = on_demand_usd(hours, rows.nodes * rows.usd_per_hour)
            return _by_the_run(demand, hours, usd)
        case "spot":
            return _spot(plan, demand, rows)
        case "buy" | "colocate":
            return _owned(plan, demand, rows, colocated=way == "colocate")
        case _:
            return _reserved(plan, demand, rows, RESERVED_YEARS[way])


def _by_the_run(demand: Demand, hours: Floats, usd: Floats) -> Costs:
    one = np.ones_like(hours)
    return Costs(hours * 3600, usd, usd * demand.runs, one, one, np.zeros_like(hours))


def _spot(plan: Plan, demand: Demand, rows: _Rows) -> Costs:
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
    return _by_the_run(demand, hours * stretch, usd)


def _clusters(plan: Plan, demand: Demand, run_hours: Floats) -> tuple[Floats, Floats]:
    """How many are needed for the runs of the last month, and how busy they are on average."""
    hours = HOURS_PER_MONTH * plan.owning.busy_at_most
    count = np.ceil(demand.runs_per_month_at_end * run_hours / hours - 1e-9)
    busy = demand.runs * run_hours / (count * demand.months * HOURS_PER_MONTH)
    return np.maximum(count, 1.0), np.minimum(busy, 1.0)


def _reserved(plan: Plan, demand: Demand, rows: _Rows, term_years: int) -> Costs:
    count, busy = _clusters(plan, demand, rows.run_hours)
    yearly = count * rows.nodes * rows.usd_per_hour * HOURS_PER_YEAR
    total = reserved_usd(demand.years, yearly, term_years=float(term_years), rest="pay")
    seconds = rows.run_hours * 3600
    return Costs(seconds, total / demand.runs, total, count, busy, np.zeros_like(seconds))


def _owned(plan: Plan, demand: Demand, rows: _Rows, *, colocated: bool) -> Costs:
    count, busy = _clusters(plan, demand, rows.run_hours)
    machines = count * rows.nodes
    site, owning = plan.site, plan.owning
    watts = machines * rows.watts
    total = owned_usd(
        Owned(
            hardware_usd=machines * rows.buy_usd,
            spares_share=owning.spares,
            network_usd=machines * rows.port_usd,
            watts=watts,
            idle_watts=watts * owning.idle_power,
            utilisation=busy,
            pue=site.pue,
            usd_per_kwh=site.electricity,
            colocation_usd_per_kw_month=site.colocation if colocated else 0.0,
            support_share_per_year=owning.support_per_year,
            staff_hours_per_month=machines * owning.staff_hours_per_month,
            staff_usd_per_hour=owning.staff,
            gpus=machines * rows.gpus,
            usd_per_failure=owning.failure,
            value_kept_per_year=owning.value_kept_per_year,
        ),
        demand.years,
    )
    seconds = rows.run_hours * 3600
    drawn = np.zeros_like(watts) if colocated else watts * site.pue
    return Costs(seconds, total / demand.runs, total, count, busy, drawn)
