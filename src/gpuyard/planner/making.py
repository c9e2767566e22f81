"""From a plan's file to its answer: search, rank, and say why."""

from pathlib import Path

import numpy as np

from gpuyard.catalog import ModelProfile
from gpuyard.catalog.specfiles import read_workload
from gpuyard.errors import UserMistake
from gpuyard.planner.alternatives import alternatives
from gpuyard.planner.candidates import Candidates, candidates_of
from gpuyard.planner.choice import choices
from gpuyard.planner.demand import demand_of
from gpuyard.planner.hosts import hosts_of, unusable_prices
from gpuyard.planner.offers import (
    RESERVING_CLOUDS,
    discount,
    given_discount,
    offers_of,
    years_of,
)
from gpuyard.planner.ranking import Ranking, plainest, rank
from gpuyard.planner.reasons import bindings, reasons, verdict
from gpuyard.planner.result import Goal, LeftOut, PlanResult
from gpuyard.predict import Calibration
from gpuyard.specs import Plan, Way, Workload
from gpuyard.specs.plan import RESERVED_YEARS
from gpuyard.workloads import profile_of

_MOST_ON_FRONT = 60


def plan_workload(plan: Plan, beside: Path) -> Workload:
    """The workload that the plan is for."""
    if isinstance(plan.workload, Workload):
        return plan.workload
    return read_workload(plan.workload, beside)


def make_plan(
    plan: Plan, beside: Path = Path(), calibration: Calibration | None = None
) -> PlanResult:
    """Search everything that the plan allows."""
    workload = plan_workload(plan, beside)
    if workload.dataset is None:
        raise UserMistake(
            f"workload: {workload.name} has no 'dataset', so nobody knows how many samples a run goes through; "
            "describe the workload with dataset.samples and epochs"
        )
    return answer(search(plan, workload, profile_of(workload), calibration), workload)


def search(
    plan: Plan,
    workload: Workload,
    profile: ModelProfile,
    calibration: Calibration | None = None,
) -> Candidates:
    """The table of all candidates, priced."""
    samples = float(workload.dataset.samples * workload.epochs) if workload.dataset else 0.0
    offers = offers_of(hosts_of(plan), plan)
    found = candidates_of(
        plan,
        workload,
        profile,
        samples_per_run=samples,
        offers=offers,
        demand=demand_of(plan),
        calibration=calibration,
    )
    if not len(found):
        raise UserMistake(f"{plan.name}: the search has no candidate: {_why_empty(found)}")
    return found


def _why_empty(candidates: Candidates) -> str:
    if candidates.no_precision:
        gpus = ", ".join(candidates.no_precision)
        return f"no rate is known for the workload's precision on {gpus}"
    if candidates.offers:
        return "none of 'search.nodes' is possible; several machines need a network"
    return "no offer of 'search.offers' and 'search.gpus' can be had by 'search.ways'"


def answer(candidates: Candidates, workload: Workload) -> PlanResult:
    """Rank the table and put it into words."""
    plan = candidates.plan
    ranking = rank(candidates)
    winner = None
    if ranking.winner is not None:
        chosen = plainest(candidates, ranking, ranking.winner)
        (winner,) = choices(candidates, ranking, [chosen])
    binding = () if winner else bindings(candidates, ranking)
    return PlanResult(
        name=plan.name,
        goal=_goal(candidates, workload),
        candidates=len(candidates),
        offers=len(candidates.offers),
        predictions=candidates.throughputs.rows,
        allowed=int(ranking.allowed.sum()),
        feasible=int(np.sum(ranking.allowed & ranking.in_time & ranking.in_budget)),
        left_out=_left_out(candidates, ranking),
        winner=winner,
        verdict=verdict(plan, winner, binding),
        reasons=reasons(candidates, ranking, winner) if winner else (),
        binding=binding,
        front=tuple(choices(candidates, ranking, _thinned(ranking))),
        alternatives=alternatives(candidates, ranking, winner),
        assumptions=_assumptions(candidates),
    )


def _goal(candidates: Candidates, workload: Workload) -> Goal:
    plan, demand = candidates.plan, candidates.demand
    return Goal(
        workload=workload.name,
        samples_per_run=candidates.samples_per_run,
        runs_per_month=demand.runs_per_month_now,
        runs_per_month_at_end=demand.runs_per_month_at_end,
        runs=demand.runs,
        months=demand.months,
        time_per_run_seconds=plan.time_per_run,
        budget_usd=plan.budget,
    )


def _thinned(ranking: Ranking) -> list[int]:
    """The whole front, or as much of it as one can look at, with both ends."""
    front = ranking.front
    if len(front) <= _MOST_ON_FRONT:
        return [int(row) for row in front]
    kept = np.unique(np.linspace(0, len(front) - 1, _MOST_ON_FRONT).round().astype(int))
    return [int(row) for row in front[kept]]


def _left_out(candidates: Candidates, ranking: Ranking) -> tuple[LeftOut, ...]:
    plan = candidates.plan
    found = [LeftOut(rule.reason, int(rule.breaks.sum())) for rule in ranking.rules]
    if plan.time_per_run is not None:
        found.append(LeftOut("takes longer than the goal", int((~ranking.in_time).sum())))
    if plan.budget is not None:
        found.append(LeftOut("costs more than the budget", int((~ranking.in_budget).sum())))
    return tuple(found)


def _assumptions(candidates: Candidates) -> tuple[str, ...]:
    """What the answer stands on that nobody measured, quoted or looked up."""
    plan = candidates.plan
    found = []
    bases = sorted({line.basis for line in candidates.lines.values()})
    found.append(f"The speed of one GPU is {' or '.join(bases)}; more GPUs are predicted.")
    found += [_reserved_words(plan, way) for way in plan.search.ways if way in RESERVED_YEARS]
    if "buy" in plan.search.ways or "colocate" in plan.search.ways:
        site, owning = plan.site, plan.owning
        found.append(
            f"Bought machines: ${site.electricity:g}/kWh at a PUE of {site.pue:g}, colocation at "
            f"${site.colocation:g}/kW/month, {owning.staff_hours_per_month:g} hours a month and "
            f"machine at ${owning.staff:g}/h, {100 * owning.value_kept_per_year:.0f} % of the value "
            "kept each year; servers without a list price are estimated from parts."
        )
    if "spot" in plan.search.ways or "on-demand" in plan.search.ways:
        start = plan.renting.start / 60
        found.append(f"Every rented run starts {start:g} minutes before its first step.")
    if "spot" in plan.search.ways:
        found.append(
            f"Spot instances are taken away {plan.spot.interruptions_per_hour:g} times an hour, each."
        )
    if candidates.no_precision:
        found.append(f"Left out, no rate for this precision: {', '.join(candidates.no_precision)}.")
    unusable = ", ".join(f"{count} ({why})" for why, count in unusable_prices().items() if count)
    found.append(f"Rows of the price list that can't be used: {unusable}.")
    if plan.search.largest_batch is None:
        found.append(
            "No limit on the samples that one update sees: accuracy may suffer (search.largest_batch)."
        )
    return tuple(found)


def _reserved_words(plan: Plan, way: Way) -> str:
    term, years = RESERVED_YEARS[way], years_of(plan)
    if term > years:
        return f"{way} is left out: it binds you for longer than the horizon."
    priced = _reserved_price(plan, way)
    if years % term > 1e-6:
        priced += " Its last term runs past the horizon and is paid to its end."
    return priced


def _reserved_price(plan: Plan, way: Way) -> str:
    off = f"{100 * discount(plan, way):.0f} % off the price on demand"
    if given_discount(plan, way) is not None:
        return f"{way} is {off}, as the plan says."
    clouds = ", ".join(sorted(RESERVING_CLOUDS))
    key = way.replace("-", "_")
    return f"{way} is taken as {off}, at {clouds} only (prices.{key})."
