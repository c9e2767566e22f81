"""Rank the candidates of a plan, check the winners against the site, and explain the choice."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpuyard.planner.candidates import Candidates
from gpuyard.planner.choice import Choice
from gpuyard.planner.choices import choose_best, create_choices, create_mixed_choices
from gpuyard.planner.costs import Premises
from gpuyard.planner.expansion import find_expansion
from gpuyard.planner.explain.alternatives import (
    compare_locations,
    describe_expansion,
    find_alternatives,
    find_hybrid_alternative,
    find_kept_mix,
)
from gpuyard.planner.explain.assumptions import list_assumptions
from gpuyard.planner.explain.decision import find_runners_up, list_decision_changes
from gpuyard.planner.explain.price_basis import describe_price_basis
from gpuyard.planner.explain.reasons import find_binding_constraints, format_verdict, list_reasons
from gpuyard.planner.mixes import Mixes, find_mixes
from gpuyard.planner.offers import (
    OWNED,
    Offer,
)
from gpuyard.planner.ranking import Ranking, pareto_front, rank
from gpuyard.planner.result import Alternative, Exclusion, Goal, PlanResult, SiteRefusal
from gpuyard.specs import Workload
from gpuyard.specs.site import Site

_MAX_ON_FRONT = 12
_MAX_CHECKS = 20  # each check finds all refused machines among the recommended ones


def build_result(candidates: Candidates, workload: Workload) -> PlanResult:
    """Rank the candidates, check them against the site if there is one, and explain the result."""
    site = candidates.premises.site
    if site is None:
        return _explain(_recommend(candidates), workload, ())
    anywhere = replace(candidates.premises, power=None, rack=None)
    unchecked = _recommend(replace(candidates, premises=anywhere))
    checked = _recommend_for_site(candidates, site)
    return _explain(checked, workload, _list_refusals(unchecked, checked.candidates.premises))


@dataclass(frozen=True)
class _Recommendation:
    """The ranked candidates and the choices that would be recommended."""

    candidates: Candidates
    ranking: Ranking
    mixes: Mixes
    winner: Choice | None
    rows: tuple[int, ...]  # of the winner; for a mix, the owned and the rented row
    front: tuple[Choice, ...]
    runners_up: tuple[Alternative, ...]
    expansion: Choice | None  # kept machines and additions to them

    @property
    def choices(self) -> list[Choice]:
        others = (other.choice for other in self.runners_up)
        return [choice for choice in (self.winner, *others, *self.front) if choice is not None]


def _recommend(candidates: Candidates) -> _Recommendation:
    ranking = rank(candidates)
    mixes = find_mixes(candidates, ranking)
    winner, rows = choose_best(candidates, ranking, mixes)
    expansion = find_expansion(candidates, ranking)
    expanded = expansion.choice if expansion is not None else None
    if expansion is not None and expansion.beats(winner):
        winner, rows = expansion.choice, expansion.rows
    front = _select_front(candidates, ranking, mixes, winner, expanded)
    others = find_runners_up(candidates, ranking, winner, expanded)
    return _Recommendation(candidates, ranking, mixes, winner, rows, front, others, expanded)


def _recommend_for_site(candidates: Candidates, site: Site) -> _Recommendation:
    """Exclude machines that the site cannot house, and rank again until it can house all recommended ones."""
    from gpuyard.planner.site_check import SiteCheck  # most plans name no site and design no room

    check, acquisition = (
        SiteCheck(site, candidates.plan.search.power_cap),
        candidates.premises.site_acquisition,
    )
    allowed = np.unique(candidates.offer[rank(candidates).allowed])
    servers = (o.server for i in allowed if (o := candidates.offers[i]).acquisition == acquisition)
    limits = check.find_unhousable(dict.fromkeys(servers))
    for _ in range(_MAX_CHECKS):
        premises = replace(candidates.premises, limits=limits)
        recommendation = _recommend(replace(candidates, premises=premises))
        too_many = {}
        for choice in recommendation.choices:
            if (choice.owned_way or choice.way) == acquisition:
                offer = _find_offer(candidates, choice)
                limit = check.find_limit(offer, choice.nodes * choice.clusters)
                if limit is not None:
                    too_many[offer.housing_key] = limit
        if not too_many:
            break
        limits = {**limits, **too_many}
    return recommendation


def _find_offer(candidates: Candidates, choice: Choice) -> Offer:
    """Return the offer of a choice; for a mix, the owned one."""
    return next(
        offer
        for offer in candidates.offers
        if (offer.server.id, offer.acquisition) == (choice.offer, choice.owned_way or choice.way)
        and offer.network_label == choice.network
    )


def _list_refusals(unchecked: _Recommendation, premises: Premises) -> tuple[SiteRefusal, ...]:
    """List choices that would be recommended without this site, once per kind of machine and reason."""
    refusals: dict[tuple[str, str], SiteRefusal] = {}
    for choice in unchecked.choices:
        offer = _find_offer(unchecked.candidates, choice)
        machines = choice.nodes * choice.clusters
        why = premises.find_refusal(
            offer.housing_key, offer.acquisition, machines, offer.server.watts
        )
        if why:
            wins = choice is unchecked.winner
            refusal = SiteRefusal(choice.offer, choice.summary, choice.usd_per_run, why, wins)
            refusals.setdefault((choice.offer, why), refusal)
    return tuple(refusals.values())


def _explain(
    recommendation: _Recommendation, workload: Workload, refused: tuple[SiteRefusal, ...]
) -> PlanResult:
    candidates, ranking = recommendation.candidates, recommendation.ranking
    mixes, rows = recommendation.mixes, recommendation.rows
    plan, winner = candidates.plan, recommendation.winner
    price_basis = describe_price_basis(candidates, ranking, winner)
    binding = () if winner else find_binding_constraints(candidates, ranking, mixes)
    hybrid = find_hybrid_alternative(candidates, ranking, mixes, winner)
    mixed_alternatives = (
        hybrid,
        find_kept_mix(candidates, ranking, mixes, winner),
        describe_expansion(candidates, recommendation.expansion, winner),
    )
    return PlanResult(
        name=plan.name,
        goal=_create_goal(candidates, workload),
        candidates=len(candidates),
        offers=len(candidates.offers),
        predictions=candidates.throughputs.rows,
        allowed=int(ranking.allowed.sum()),
        feasible=int(ranking.feasible.sum()),
        left_out=_count_exclusions(candidates, ranking),
        winner=winner,
        verdict=" ".join(filter(None, (format_verdict(plan, winner, binding), price_basis))),
        price_basis=price_basis,
        reasons=list_reasons(candidates, ranking, winner, hybrid) if winner else (),
        binding=binding,
        front=recommendation.front,
        alternatives=(
            *find_alternatives(candidates, ranking, winner),
            *(alternative for alternative in mixed_alternatives if alternative is not None),
        ),
        assumptions=list_assumptions(candidates),
        runners_up=recommendation.runners_up,
        would_change=list_decision_changes(candidates, ranking, winner, rows),
        site=candidates.premises.name,
        refused=refused,
        electricity=candidates.premises.tariff if set(OWNED) & set(plan.search.ways) else None,
        places=compare_locations(candidates, ranking, winner, next(iter(rows), None)),
        precisions=candidates.precisions,
        no_rate=candidates.missing_rates,
    )


def _create_goal(candidates: Candidates, workload: Workload) -> Goal:
    plan, runs = candidates.plan, candidates.runs
    return Goal(
        workload=workload.name,
        samples_per_run=candidates.samples_per_run,
        tokens_per_run=candidates.tokens_per_run,
        runs_per_month=runs.per_month_now,
        runs_per_month_at_end=runs.per_month_at_end,
        runs=runs.total,
        months=runs.months,
        time_per_run_seconds=plan.time_per_run,
        budget_usd=plan.budget,
    )


def _select_front(
    candidates: Candidates,
    ranking: Ranking,
    mixes: Mixes,
    winner: Choice | None,
    expanded: Choice | None,
) -> tuple[Choice, ...]:
    """Select the Pareto front within the budget, including mixes.

    It has the cheapest setting of each machine. If there are too many to show, both ends, the winner, and the ones
    most different from each other remain.
    """
    costs, count = candidates.costs, len(candidates)
    mixed = np.flatnonzero(mixes.mixed & mixes.in_budget)
    chosen = np.concatenate([ranking.front, count + mixed])
    seconds = np.concatenate([costs.run_seconds, mixes.run_seconds])
    front = pareto_front(seconds, np.concatenate([costs.usd_per_run, mixes.usd_per_run]), chosen)
    choices = create_choices(candidates, ranking, [int(row) for row in front if row < count])
    choices += create_mixed_choices(
        candidates, ranking, mixes, [int(row - count) for row in front if row >= count]
    )
    if (
        expanded is not None
        and expanded.in_budget
        and not any(_beats(c, expanded) for c in choices)
    ):
        choices = [*(choice for choice in choices if not _beats(expanded, choice)), expanded]
    choices.sort(key=lambda choice: choice.run_seconds)
    # the slowest setting of the same machines is their cheapest; the fastest of all stays too
    distinct = list({choice.summary: choice for choice in choices}.values())
    distinct = [*choices[:1], *(choice for choice in distinct if choice is not choices[0])]
    distinct.sort(key=lambda choice: choice.run_seconds)
    if len(distinct) <= _MAX_ON_FRONT:
        return tuple(distinct)
    of_winner = [i for i, c in enumerate(distinct) if winner and c.has_same_machines(winner)]
    required = dict.fromkeys([0, len(distinct) - 1, *of_winner[-1:]])
    return tuple(distinct[i] for i in sorted(_spread_out(distinct, list(required), _MAX_ON_FRONT)))


def _spread_out(choices: Sequence[Choice], required: Sequence[int], maximum: int) -> set[int]:
    """Return the required indices, and then those farthest from all selected ones in log time and log cost."""
    costs = [max(choice.usd_per_run, 1e-9) for choice in choices]
    points = np.log(np.column_stack([[choice.run_seconds for choice in choices], costs]))
    distance = np.full(len(choices), np.inf)
    selected: list[int] = []
    for number in range(maximum):
        index = required[number] if number < len(required) else int(np.argmax(distance))
        selected.append(index)
        distance = np.minimum(distance, np.hypot(*(points - points[index]).T))
    return set(selected)


def _beats(choice: Choice, other: Choice) -> bool:
    """Return whether a choice is at least as fast and as cheap as another."""
    return choice.run_seconds <= other.run_seconds and choice.usd_per_run <= other.usd_per_run


def _count_exclusions(candidates: Candidates, ranking: Ranking) -> tuple[Exclusion, ...]:
    plan = candidates.plan
    exclusions = [Exclusion(rule.reason, int(rule.breaks.sum())) for rule in ranking.rules]
    if plan.time_per_run is not None:
        exclusions.append(Exclusion("takes longer than the goal", int((~ranking.in_time).sum())))
    if plan.budget is not None:
        exclusions.append(Exclusion("costs more than the budget", int((~ranking.in_budget).sum())))
    return tuple(exclusions)
