"""Answer a plan: search the candidates, rank them, check the site, and explain the choice."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gpuyard.catalog import Gpu, ModelProfile
from gpuyard.catalog.specfiles import read_site, read_workload
from gpuyard.choices import LargePrecision
from gpuyard.errors import UserMistake
from gpuyard.planner.candidates import Candidates, create_candidates
from gpuyard.planner.choices import choose_best, create_choices, create_mixed_choices
from gpuyard.planner.costs import Premises, create_premises
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
    TOKEN_BYTES,
    Offer,
    estimate_cloud_data,
    list_offers,
    plan_runs,
)
from gpuyard.planner.ranking import Ranking, pareto_front, rank
from gpuyard.planner.result import (
    Alternative,
    Choice,
    Exclusion,
    Goal,
    MissingRate,
    PlanResult,
    SiteRefusal,
)
from gpuyard.planner.servers import list_servers
from gpuyard.planner.sharded import Sharded, find_precisions
from gpuyard.planner.throughput import Grid, cap_lines, find_compute_lines, find_missing_rates
from gpuyard.planner.training import DataParallel
from gpuyard.predictor import Calibration
from gpuyard.predictor.large.model import describe_model
from gpuyard.predictor.large.search import divisors
from gpuyard.predictor.large.training import create_training, trained_share
from gpuyard.specs import Workload
from gpuyard.specs.plan import Plan, PlanSearch
from gpuyard.specs.site import Site
from gpuyard.workloads import profile_model
from gpuyard.workloads.shapes import find_shape, needs_layout

_MAX_ON_FRONT = 12
_BATCH_FACTORS = (0.5, 1, 2, 4, 8)
_MAX_CHECKS = 20  # each check finds all refused machines among the recommended ones


Measurements = Callable[[Workload, ModelProfile], Workload]
"""Adds stored measurements of a model to a workload."""


def read_plan_workload(plan: Plan, directory: Path) -> Workload:
    """Return the plan's workload, from its file if it names one."""
    if isinstance(plan.workload, Workload):
        return plan.workload
    return read_workload(plan.workload, directory)


def make_plan(
    plan: Plan,
    directory: Path = Path(),
    calibration: Calibration | None = None,
    site: Site | None = None,
    figures: Measurements | None = None,
) -> PlanResult:
    """Search everything that the plan allows.

    Bought machines stand at `site`, or at the site that the plan names.
    """
    workload = read_plan_workload(plan, directory)
    if plan.tokens is not None:
        workload = workload.model_copy(update={"tokens": plan.tokens})
    premises = read_plan_premises(plan, directory, site)
    if needs_layout(workload, None, options_named=False):
        candidates = search_sharded(plan, workload, premises)
        return build_result(candidates, workload)
    if workload.dataset is None and workload.tokens is None:
        raise UserMistake(
            f"workload: {workload.name} has no 'dataset', so the number of samples in a run is unknown; "
            "give the workload dataset.samples and epochs, or 'tokens'"
        )
    profile = profile_model(workload)
    if figures is not None:
        workload = figures(workload, profile)
    return build_result(search(plan, workload, profile, calibration, premises), workload)


def read_plan_premises(plan: Plan, directory: Path, site: Site | None = None) -> Premises:
    """Describe where the plan's bought machines would stand."""
    if site is None and isinstance(plan.site, str):
        site = read_site(directory / plan.site)
    return create_premises(plan, site)


def search(
    plan: Plan,
    workload: Workload,
    profile: ModelProfile,
    calibration: Calibration | None = None,
    premises: Premises | None = None,
) -> Candidates:
    """Return the table of all candidates with their predictions and prices."""
    shape = find_shape(workload)
    sharding = create_training(workload) if shape is not None else None
    offers = list_offers(list_servers(plan), plan)
    gpus = _list_gpus(offers)
    precisions = plan.search.precision or ()
    lines = find_compute_lines(workload, profile, gpus, calibration, precisions)
    lines = cap_lines(lines, gpus, plan.search.power_cap)
    grid = Grid(
        tuple(sorted(set(plan.search.nodes))),
        plan.search.batch or _choose_batches(workload.batch_per_gpu),
        tuple(dict.fromkeys(plan.search.remedies)),
    )
    given = bool(precisions or workload.precision)
    sharded = None
    if sharding is not None:
        tried = {gpu: tuple(by_precision) for gpu, by_precision in lines.items()}
        sharded = Sharded(workload, sharding, grid, tried, given)
    training = DataParallel(workload, profile, lines, grid, calibration, given, sharded)
    candidates = create_candidates(
        plan,
        training,
        samples_per_run=_count_samples(workload, sharding.length if sharding else None),
        tokens_per_sample=sharding.length if sharding else None,
        offers=offers,
        runs=plan_runs(plan),
        premises=premises or create_premises(plan),
        data=estimate_cloud_data(plan, workload, profile.parameters, profile.input_bytes),
        missing_rates=_group_missing(
            find_missing_rates(lines, workload, profile, gpus, precisions), offers
        ),
    )
    return _require_some(candidates)


def find_cheapest_rental(workload: Workload, gpu: str, gpus: int) -> Choice | None:
    """Return the cheapest machines rented on demand that train the workload once on this number of GPUs.

    Each offer trains with the fastest layout that fits on it, over its own network.
    """
    search_ways = PlanSearch(ways=("on-demand",), gpus=(gpu,), nodes=tuple(divisors(gpus)))
    plan = Plan.model_validate(
        {"name": workload.name, "workload": workload, "runs_per_month": 1, "horizon": "1 month",
         "search": search_ways}
    )  # fmt: skip
    try:
        candidates = search_sharded(plan, workload, gpus=gpus)
    except UserMistake:  # nobody rents this GPU in such machines
        return None
    ranking = rank(candidates)
    if ranking.cheapest is None:
        return None
    return create_choices(candidates, ranking, [ranking.cheapest])[0]


def search_sharded(
    plan: Plan, workload: Workload, premises: Premises | None = None, gpus: int | None = None
) -> Candidates:
    """Return the table of all candidates for a model that is divided among GPUs; `gpus` fixes their number."""
    training = create_training(workload)
    offers = list_offers(list_servers(plan), plan)
    kinds = _list_gpus(offers)
    spec = workload.parallel
    one = workload.precision or (spec.precision if spec else None)
    precisions: tuple[LargePrecision, ...] = plan.search.precision or ((one,) if one else ())
    by_gpu = find_precisions(kinds, precisions)
    missing = [(g.id, p) for g in kinds for p in precisions if p not in by_gpu.get(g.id, ())]
    grid = Grid(tuple(sorted(set(plan.search.nodes))), (1,), ("none",))
    model = describe_model(training.shape)
    trained = float(model.parameters) * trained_share(training, model)
    candidates = create_candidates(
        plan,
        Sharded(workload, training, grid, by_gpu, bool(precisions), gpus),
        samples_per_run=_count_samples(workload, training.length),
        tokens_per_sample=training.length,
        offers=offers,
        runs=plan_runs(plan),
        premises=premises or create_premises(plan),
        data=estimate_cloud_data(plan, workload, trained, TOKEN_BYTES * training.length),
        missing_rates=_group_missing(missing, offers),
    )
    return _require_some(candidates)


def _list_gpus(offers: Sequence[Offer]) -> list[Gpu]:
    return list({offer.server.gpu.id: offer.server.gpu for offer in offers}.values())


def _group_missing(
    missing: Sequence[tuple[str, LargePrecision]], offers: Sequence[Offer]
) -> list[MissingRate]:
    return [
        MissingRate(gpu, precision, tuple(dict.fromkeys(o.server.id for o in offers if o.server.gpu.id == gpu)))
        for gpu, precision in missing
    ]  # fmt: skip


def _count_samples(workload: Workload, sequence: int | None) -> float:
    """Return the samples of one run; tokens take precedence over the dataset."""
    if workload.tokens is not None and sequence is None:
        raise UserMistake(
            f"workload: {workload.name} has 'tokens', but its model is not a transformer that gpuyard knows by shape; "
            "give dataset.samples and epochs"
        )
    if workload.tokens is not None and sequence is not None:
        return workload.tokens / sequence
    if workload.dataset is None:
        raise UserMistake(
            f"workload: {workload.name} has neither 'tokens' nor a 'dataset', so the length of a run is unknown; "
            "add tokens: 20B to the plan"
        )
    return float(workload.dataset.samples * workload.epochs)


def _choose_batches(usual: int) -> tuple[int, ...]:
    return tuple(dict.fromkeys(max(1, round(usual * factor)) for factor in _BATCH_FACTORS))


def _require_some(candidates: Candidates) -> Candidates:
    if not len(candidates):
        raise UserMistake(f"{candidates.plan.name}: no candidates: {_explain_empty(candidates)}")
    return candidates


def _explain_empty(candidates: Candidates) -> str:
    if candidates.missing_rates:
        missing = ", ".join(rate.description for rate in candidates.missing_rates)
        return f"the rate is unknown {missing}"
    if candidates.offers:
        return "no node count in 'search.nodes' is possible; several machines need a network"
    return "no offer in 'search.offers' and 'search.gpus' can be acquired by 'search.ways'"


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
