"""From a plan's file to its answer: search, rank, and say why."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gpuyard.catalog import ModelProfile
from gpuyard.catalog.specfiles import read_site, read_workload
from gpuyard.errors import UserMistake
from gpuyard.planner.candidates import Candidates, candidates_of
from gpuyard.planner.costs import Premises, premises_of
from gpuyard.planner.explain.alternatives import (
    alternatives,
    hybrid_alternative,
    kept_extended,
    kept_mix,
    sitings,
)
from gpuyard.planner.explain.assumptions import assumptions
from gpuyard.planner.explain.choices import best_choice, choices, mixed_choices
from gpuyard.planner.explain.decision import runners_up, would_change
from gpuyard.planner.explain.reasons import bindings, reasons, verdict
from gpuyard.planner.kept import kept_and_added
from gpuyard.planner.mixes import Mixes, find_mixes
from gpuyard.planner.offers import OWNED, Offer, cloud_data_of, offers_of, runs_of
from gpuyard.planner.ranking import Ranking, pareto_front, rank
from gpuyard.planner.result import Alternative, Choice, Goal, LeftOut, PlanResult, SiteRefusal
from gpuyard.planner.servers import servers_of
from gpuyard.predict import Calibration
from gpuyard.specs import Workload
from gpuyard.specs.plan import Plan
from gpuyard.specs.site import Site
from gpuyard.workloads import profile_of

_MOST_ON_FRONT = 12
_MOST_CHECKS = 20  # each finds all that is refused of what is recommended then


def plan_workload(plan: Plan, directory: Path) -> Workload:
    """The workload that the plan is for."""
    if isinstance(plan.workload, Workload):
        return plan.workload
    return read_workload(plan.workload, directory)


def make_plan(
    plan: Plan,
    directory: Path = Path(),
    calibration: Calibration | None = None,
    site: Site | None = None,
    figures: Callable[[Workload, ModelProfile], Workload] | None = None,
) -> PlanResult:
    """Search everything that the plan allows. A site, given or named by the plan, is where bought
    machines would stand; `figures` adds to a workload what else was measured of it."""
    workload = plan_workload(plan, directory)
    if workload.dataset is None:
        raise UserMistake(
            f"workload: {workload.name} has no 'dataset', so the number of samples in a run is unknown; "
            "give the workload dataset.samples and epochs"
        )
    premises = plan_premises(plan, directory, site)
    profile = profile_of(workload)
    if figures is not None:
        workload = figures(workload, profile)
    return plan_result(search(plan, workload, profile, calibration, premises), workload)


def plan_premises(plan: Plan, directory: Path, site: Site | None = None) -> Premises:
    """Where the plan's bought machines would stand."""
    if site is None and isinstance(plan.site, str):
        site = read_site(directory / plan.site)
    return premises_of(plan, site)


def search(
    plan: Plan,
    workload: Workload,
    profile: ModelProfile,
    calibration: Calibration | None = None,
    premises: Premises | None = None,
) -> Candidates:
    """The table of all candidates, priced."""
    samples = float(workload.dataset.samples * workload.epochs) if workload.dataset else 0.0
    offers = offers_of(servers_of(plan), plan)
    found = candidates_of(
        plan,
        workload,
        profile,
        samples_per_run=samples,
        offers=offers,
        runs=runs_of(plan),
        premises=premises or premises_of(plan),
        data=cloud_data_of(plan, workload, profile),
        calibration=calibration,
    )
    if not len(found):
        raise UserMistake(f"{plan.name}: the search finds no candidate: {_why_empty(found)}")
    return found


def _why_empty(candidates: Candidates) -> str:
    if candidates.no_rate:
        return f"no rate is known {', '.join(missing.words for missing in candidates.no_rate)}"
    if candidates.offers:
        return "none of 'search.nodes' is possible; several machines need a network"
    return "no offer of 'search.offers' and 'search.gpus' can be acquired by 'search.ways'"


def plan_result(candidates: Candidates, workload: Workload) -> PlanResult:
    """Rank the table, check with the site if there is one, and put it into words."""
    site = candidates.premises.site
    if site is None:
        return _in_words(_ranked(candidates), workload, ())
    anywhere = replace(candidates.premises, power=None, rack=None)
    unchecked = _ranked(replace(candidates, premises=anywhere))
    ranked = _housed(candidates, site)
    return _in_words(ranked, workload, _refusals(unchecked, ranked.candidates.premises))


@dataclass(frozen=True)
class _Ranked:
    """The candidates sorted out, and what would be recommended of them."""

    candidates: Candidates
    ranking: Ranking
    mixes: Mixes
    winner: Choice | None
    rows: tuple[int, ...]  # that the winner is made of: of a mix, what it owns and what it rents
    front: tuple[Choice, ...]
    runners_up: tuple[Alternative, ...]
    extended: Choice | None  # what is kept, and what would be added to it

    @property
    def recommended(self) -> list[Choice]:
        others = (other.choice for other in self.runners_up)
        return [choice for choice in (self.winner, *others, *self.front) if choice is not None]


def _ranked(candidates: Candidates) -> _Ranked:
    ranking = rank(candidates)
    mixes = find_mixes(candidates, ranking)
    winner, rows = best_choice(candidates, ranking, mixes)
    extended = kept_and_added(candidates, ranking)
    more = extended.choice if extended is not None else None
    if extended is not None and extended.beats(winner):
        winner, rows = extended.choice, extended.rows
    front = _front(candidates, ranking, mixes, winner, more)
    others = runners_up(candidates, ranking, winner, more)
    return _Ranked(candidates, ranking, mixes, winner, rows, front, others, more)


def _housed(candidates: Candidates, site: Site) -> _Ranked:
    """Ranked without what the site refuses, again until it takes all that would be recommended."""
    from gpuyard.planner.site_check import SiteCheck  # most plans name no site, and design no room

    check, here = SiteCheck(site), candidates.premises.houses
    allowed = np.unique(candidates.offer[rank(candidates).allowed])
    servers = (o.server for i in allowed if (o := candidates.offers[i]).acquisition == here)
    limits = check.alone(dict.fromkeys(servers))
    for _ in range(_MOST_CHECKS):
        premises = replace(candidates.premises, limits=limits)
        ranked = _ranked(replace(candidates, premises=premises))
        too_many = {}
        for choice in ranked.recommended:
            if (choice.owned_way or choice.way) == here:
                offer = _offer_of(candidates, choice)
                limit = check.limit(offer, choice.nodes * choice.clusters)
                if limit is not None:
                    too_many[offer.housed] = limit
        if not too_many:
            break
        limits = {**limits, **too_many}
    return ranked


def _offer_of(candidates: Candidates, choice: Choice) -> Offer:
    """What a choice was made from; of a mix, what is owned."""
    return next(
        offer
        for offer in candidates.offers
        if (offer.server.id, offer.acquisition) == (choice.offer, choice.owned_way or choice.way)
        and offer.network_words == choice.network
    )


def _refusals(unchecked: _Ranked, premises: Premises) -> tuple[SiteRefusal, ...]:
    """What would have been recommended, but for the site."""
    found: dict[
        tuple[str, str], SiteRefusal
    ] = {}  # once for each kind of machine and what it lacks
    for choice in unchecked.recommended:
        offer = _offer_of(unchecked.candidates, choice)
        machines = choice.nodes * choice.clusters
        why = premises.refusal(offer.housed, offer.acquisition, machines, offer.server.watts)
        if why:
            wins = choice is unchecked.winner
            refusal = SiteRefusal(choice.offer, choice.what, choice.usd_per_run, why, wins)
            found.setdefault((choice.offer, why), refusal)
    return tuple(found.values())


def _in_words(ranked: _Ranked, workload: Workload, refused: tuple[SiteRefusal, ...]) -> PlanResult:
    candidates, ranking, mixes = ranked.candidates, ranked.ranking, ranked.mixes
    plan, winner = candidates.plan, ranked.winner
    binding = () if winner else bindings(candidates, ranking, mixes)
    hybrid = hybrid_alternative(candidates, ranking, mixes, winner)
    kept = kept_mix(candidates, ranking, mixes, winner)
    more = kept_extended(candidates, ranked.extended, winner)
    return PlanResult(
        name=plan.name,
        goal=_goal(candidates, workload),
        candidates=len(candidates),
        offers=len(candidates.offers),
        predictions=candidates.throughputs.rows,
        allowed=int(ranking.allowed.sum()),
        feasible=int(ranking.feasible.sum()),
        left_out=_left_out(candidates, ranking),
        winner=winner,
        verdict=verdict(plan, winner, binding),
        reasons=reasons(candidates, ranking, winner, hybrid) if winner else (),
        binding=binding,
        front=ranked.front,
        alternatives=(
            *alternatives(candidates, ranking, winner),
            *(one for one in (hybrid, kept, more) if one is not None),
        ),
        assumptions=assumptions(candidates),
        runners_up=ranked.runners_up,
        would_change=would_change(candidates, ranking, winner, ranked.rows),
        site=candidates.premises.name,
        refused=refused,
        electricity=candidates.premises.tariff if set(OWNED) & set(plan.search.ways) else None,
        places=sitings(candidates, ranking, winner, next(iter(ranked.rows), None)),
        precisions=candidates.precisions,
        no_rate=candidates.no_rate,
    )


def _goal(candidates: Candidates, workload: Workload) -> Goal:
    plan, runs = candidates.plan, candidates.runs
    return Goal(
        workload=workload.name,
        samples_per_run=candidates.samples_per_run,
        runs_per_month=runs.per_month_now,
        runs_per_month_at_end=runs.per_month_at_end,
        runs=runs.total,
        months=runs.months,
        time_per_run_seconds=plan.time_per_run,
        budget_usd=plan.budget,
    )


def _front(
    candidates: Candidates,
    ranking: Ranking,
    mixes: Mixes,
    winner: Choice | None,
    extended: Choice | None,
) -> tuple[Choice, ...]:
    """What nothing in the budget beats in both, mixes among it: each machine's cheapest, and of many as much as
    one can look at, with both ends and the choice."""
    costs, count = candidates.costs, len(candidates)
    mixed = np.flatnonzero(mixes.mixed & mixes.in_budget)
    chosen = np.concatenate([ranking.front, count + mixed])
    seconds = np.concatenate([costs.run_seconds, mixes.run_seconds])
    front = pareto_front(seconds, np.concatenate([costs.usd_per_run, mixes.usd_per_run]), chosen)
    found = choices(candidates, ranking, [int(row) for row in front if row < count])
    found += mixed_choices(
        candidates, ranking, mixes, [int(row - count) for row in front if row >= count]
    )
    if extended is not None and extended.in_budget and not any(_beats(c, extended) for c in found):
        found = [*(choice for choice in found if not _beats(extended, choice)), extended]
    found.sort(key=lambda choice: choice.run_seconds)
    # the slowest setting of the same machines is their cheapest; the fastest of all stays too
    shown = list({choice.what: choice for choice in found}.values())
    shown = [*found[:1], *(choice for choice in shown if choice is not found[0])]
    shown.sort(key=lambda choice: choice.run_seconds)
    if len(shown) <= _MOST_ON_FRONT:
        return tuple(shown)
    mine = [i for i, choice in enumerate(shown) if winner and choice.same_machines(winner)]
    ends = dict.fromkeys([0, len(shown) - 1, *mine[-1:]])
    kept = _far_apart(shown, list(ends), _MOST_ON_FRONT)
    return tuple(shown[i] for i in sorted(kept))


def _far_apart(found: Sequence[Choice], kept: Sequence[int], most: int) -> set[int]:
    """These and, one after the other, those that are least like any of them: in how many times the time and the
    cost."""
    costs = [max(choice.usd_per_run, 1e-9) for choice in found]
    at = np.log(np.column_stack([[choice.run_seconds for choice in found], costs]))
    far = np.full(len(found), np.inf)
    chosen: list[int] = []
    for number in range(most):
        nearest = kept[number] if number < len(kept) else int(np.argmax(far))
        chosen.append(nearest)
        far = np.minimum(far, np.hypot(*(at - at[nearest]).T))
    return set(chosen)


def _beats(one: Choice, other: Choice) -> bool:
    """Faster, and no dearer."""
    return one.run_seconds <= other.run_seconds and one.usd_per_run <= other.usd_per_run


def _left_out(candidates: Candidates, ranking: Ranking) -> tuple[LeftOut, ...]:
    plan = candidates.plan
    found = [LeftOut(rule.reason, int(rule.breaks.sum())) for rule in ranking.rules]
    if plan.time_per_run is not None:
        found.append(LeftOut("takes longer than the goal", int((~ranking.in_time).sum())))
    if plan.budget is not None:
        found.append(LeftOut("costs more than the budget", int((~ranking.in_budget).sum())))
    return tuple(found)
