"""The reasons for the choice; or, if no candidate meets the goal, which constraint fails by how much."""

import numpy as np

from gpuyard import units
from gpuyard.economics.ownership import owned_usd
from gpuyard.planner.candidates import Candidates
from gpuyard.planner.choice import (
    ACQUISITION_LABELS,
    Choice,
    RentedRest,
    format_count,
    format_dollars,
    format_share_of_runs,
    join_with_or,
)
from gpuyard.planner.choices import create_choices, create_mixed_choices
from gpuyard.planner.costs import describe_owned_machines
from gpuyard.planner.mixes import Mixes
from gpuyard.planner.offers import OWNED, horizon_years
from gpuyard.planner.ranking import SIMPLICITY_TOLERANCE, Ranking
from gpuyard.planner.result import Alternative, BindingConstraint
from gpuyard.specs.plan import Plan
from gpuyard.specs.plan_candidates import Acquisition


def describe_goal(plan: Plan) -> str:
    parts = []
    if plan.time_per_run is not None:
        parts.append(f"a run in {units.format_seconds(plan.time_per_run)}")
    if plan.budget is not None:
        over = f"over {units.format_years(horizon_years(plan))}"
        parts.append(f"at most {format_dollars(plan.budget)} {over}")
    return ", ".join(parts)


def format_verdict(
    plan: Plan, winner: Choice | None, binding: tuple[BindingConstraint, ...]
) -> str:
    if winner is not None:
        return f"{winner.summary}: {winner.price}, {winner.duration}, {winner.how_trained}."
    sentences = " ".join(constraint.sentence for constraint in binding)
    goal = describe_goal(plan)
    return f"No option {f'meets the goal ({goal})' if goal else 'is allowed'}. {sentences}"


def list_reasons(
    candidates: Candidates, ranking: Ranking, winner: Choice, hybrid: Alternative | None
) -> tuple[str, ...]:
    """List the reasons for the choice, the strongest first."""
    plan = candidates.plan
    feasible = int(ranking.feasible.sum())
    goal = describe_goal(plan)
    reasons = [
        f"{feasible:,} of {len(candidates):,} candidates "
        f"{f'meet the goal ({goal})' if goal else 'are allowed'}. These machines cost least per finished "
        f"run, in the simplest setting within {units.format_share(SIMPLICITY_TOLERANCE)} of the best.",
        _describe_efficiency(winner),
    ]
    if winner.layout is not None and winner.tokens_per_second is not None:
        reasons.append(
            f"One run is {units.format_tokens(candidates.tokens_per_run or 0.0)} tokens at "
            f"{winner.tokens_per_second:,.0f} tokens/s and takes {winner.energy_kwh:,.0f} kWh without cooling."
        )
    if winner.kept:
        reasons += _describe_expansion(candidates, winner)
    elif winner.rest is not None:
        reasons.append(_describe_mix(candidates, winner, winner.rest))
    elif winner.way == "keep":
        reasons.append(_describe_kept(candidates, winner))
    elif winner.way in OWNED or winner.way.startswith("reserved"):
        reasons.append(_describe_idle_cost(candidates, winner))
    reasons += _compare_acquisitions(candidates, ranking, winner)
    reasons += _describe_unused(candidates, ranking, winner)
    if hybrid is not None and winner.rest is None and not candidates.plan.policy.data_stays:
        reasons.append(f"Own some and rent the rest: {hybrid.sentence}")
    return tuple(reasons)


def _describe_efficiency(winner: Choice) -> str:
    if winner.gpus == 1:
        return f"One GPU is enough: {winner.setting}."
    return (
        f"{winner.gpus} GPUs at {units.format_share(winner.scaling_efficiency)} efficiency are "
        f"{winner.effective_gpus:.3g} effective GPUs: {winner.setting}."
    )


def _describe_mix(candidates: Candidates, winner: Choice, rest: RentedRest) -> str:
    runs = candidates.runs
    machines = winner.nodes * winner.clusters
    return (
        f"Of {runs.total:,.0f} runs over {units.format_years(runs.years)} the {machines} owned "
        f"machine{'s do' if machines > 1 else ' does'} {format_share_of_runs(1 - rest.share_of_runs)} and "
        f"{'are' if machines > 1 else 'is'} busy {units.format_share(winner.utilization)} of the time; "
        f"{_explain_size(candidates, winner)}. The rest is rented at {format_dollars(rest.usd_per_run)} per run, "
        f"{format_dollars(winner.total_usd)} total."
    )


def _describe_kept(candidates: Candidates, winner: Choice) -> str:
    runs = candidates.runs
    server = next(o.server for o in candidates.offers if o.server.id == winner.offer)
    return (
        f"You have {server.owned}: keeping {winner.nodes * winner.clusters} costs the "
        f"{format_dollars(server.value_usd)} resale value of each plus the running cost, "
        f"{format_dollars(winner.total_usd)} total. {runs.total:,.0f} runs over {units.format_years(runs.years)} keep them busy "
        f"{units.format_share(winner.utilization)} of the time."
    )


def _describe_expansion(candidates: Candidates, winner: Choice) -> list[str]:
    """Describe the kept and the added machines, and why a run never uses both."""
    runs = candidates.runs
    sentences = [
        f"Of {runs.total:,.0f} runs over {units.format_years(runs.years)} {part.machines}, kept, does "
        f"{format_share_of_runs(part.share_of_runs)} in {units.format_seconds(part.run_seconds)} each and is busy "
        f"{units.format_share(part.utilization)} of the time, {format_dollars(part.total_usd)} total."
        for part in winner.kept
    ]
    kept_share = sum(part.share_of_runs for part in winner.kept)
    rented_share = winner.rest.share_of_runs if winner.rest else 0.0
    sentences.append(
        f"{format_count(winner.nodes * winner.clusters)}{winner.name}, {winner.how_acquired}, does "
        f"{format_share_of_runs(1 - kept_share - rented_share)} and is busy "
        f"{units.format_share(winner.utilization)} of the time. "
        "Each run uses machines of one kind: in one job all GPUs would wait for the slowest in every step."
    )
    return sentences


def _describe_unused(candidates: Candidates, ranking: Ranking, winner: Choice) -> list[str]:
    """Describe the machines you have that the choice does not use."""
    used = {part.offer: part.nodes * part.clusters for part in winner.kept}
    if "keep" in (winner.way, winner.owned_way):
        used[winner.offer] = winner.nodes * winner.clusters
    sentences = []
    for server in {
        o.server.id: o.server for o in candidates.offers if o.acquisition == "keep"
    }.values():
        unused = (server.owned or 0) - used.get(server.id, 0)
        if unused <= 0:
            continue
        own_rows = np.array([o.server.id == server.id for o in candidates.offers])[candidates.offer]
        possible = own_rows & ~ranking.impossible
        fastest = np.min(candidates.costs.run_seconds, where=possible, initial=np.inf)
        who = f"{server.name}, which you have,"
        if server.id in used:
            who, why = f"Of your {server.owned} × {server.name},", f"{unused} would not pay here"
        elif not possible.any():
            rules = "; ".join(
                rule.reason
                for rule in ranking.rules
                if not rule.depends_on_size and (rule.breaks & own_rows).any()
            )
            why = f"cannot do these runs ({rules})"
        elif not (possible & ranking.in_time).any():
            why = f"takes {units.format_seconds(float(fastest))} for a run, which is too long"
        else:
            why = "costs more to run than it saves here"
        row = np.flatnonzero(own_rows)[:1]
        nodes = int(candidates.throughputs.nodes[candidates.row[row[0]]])
        idle = describe_owned_machines(
            candidates.plan, candidates.premises, candidates.price_rows(row, np.ones(1)), "keep",
            clusters=1.0 / nodes, utilization=0.0, years=candidates.runs.years,
        )  # fmt: skip
        monthly = float(owned_usd(idle, candidates.runs.years)[0]) / candidates.runs.months
        sentences.append(
            f"{who} {why}. For smaller jobs, keeping one idle costs {format_dollars(monthly)} per month including "
            f"its loss in value; selling one brings {format_dollars(server.value_usd)}."
        )
    return sentences


def _explain_size(candidates: Candidates, winner: Choice) -> str:
    """Explain why a mix does not own another cluster."""
    if winner.owned_way == "keep":
        server = next(o.server for o in candidates.offers if o.server.id == winner.offer)
        if winner.nodes * (winner.clusters + 1) > (server.owned or 0):
            return "you have no more of them"
    limit = candidates.premises.power
    if limit is not None and limit.acquisition == winner.owned_way:
        watts = next(o.server.watts for o in candidates.offers if o.server.id == winner.offer)
        if watts * winner.nodes * (winner.clusters + 1) > limit.watts:
            return "there is no power for more"
    return "more of them would be idle too often"


def _describe_idle_cost(candidates: Candidates, winner: Choice) -> str:
    runs = candidates.runs
    return (
        f"You pay for it even when it is idle: {runs.total:,.0f} runs over {units.format_years(runs.years)} "
        f"keep it busy {units.format_share(winner.utilization)} of the time, "
        f"{format_dollars(winner.total_usd)} total."
    )


def _compare_acquisitions(candidates: Candidates, ranking: Ranking, winner: Choice) -> list[str]:
    """Describe the best candidate of each other acquisition that meets the goal."""
    usd = candidates.costs.usd_per_run
    rows: list[int] = []
    infeasible: list[Acquisition] = []
    for acquisition in candidates.plan.search.ways:
        if acquisition == winner.way:
            continue
        acquired = candidates.acquired_by(acquisition)
        chosen = np.flatnonzero(ranking.feasible & acquired)
        if len(chosen):
            rows.append(int(chosen[np.argmin(usd[chosen])]))
        elif np.any(acquired):
            infeasible.append(acquisition)
    rows.sort(key=lambda row: float(usd[row]))
    sentences = [
        f"Best option when {other.how_acquired}: {other.machines}, "
        f"{format_dollars(other.usd_per_run)} per run, {units.format_seconds(other.run_seconds)}."
        for other in create_choices(candidates, ranking, rows)
    ]
    if infeasible:
        labels = join_with_or([ACQUISITION_LABELS[acquisition] for acquisition in infeasible])
        sentences.append(f"No option meets the goal when {labels}.")
    return sentences


def find_binding_constraints(
    candidates: Candidates, ranking: Ranking, mixes: Mixes
) -> tuple[BindingConstraint, ...]:
    """Return each constraint of the goal that no candidate meets."""
    plan = candidates.plan
    if not ranking.allowed.any():
        counts = "; ".join(
            f"{int(rule.breaks.sum()):,} because: {rule.reason}"
            for rule in ranking.rules
            if rule.breaks.any()
        )
        sentence = (
            f"All {len(candidates):,} candidates are ruled out: {counts or 'none was tried'}."
        )
        return (BindingConstraint("rules", 0.0, sentence, None),)
    constraints = []
    if plan.budget is not None and ranking.cheapest_in_time is not None:
        (near,) = create_choices(candidates, ranking, [ranking.cheapest_in_time])
        mixed = mixes.cheapest(mixes.mixed & mixes.in_time)
        if mixed is not None and mixes.total_usd[mixed] < near.total_usd:
            (near,) = create_mixed_choices(candidates, ranking, mixes, [mixed])
        over = near.total_usd - plan.budget
        in_time = " in time" if plan.time_per_run is not None else ""
        sentence = (
            f"The budget is short by {format_dollars(over)}: the cheapest option that finishes{in_time} is "
            f"{near.summary} at {format_dollars(near.total_usd)} total."
        )
        constraints.append(BindingConstraint("budget", over, sentence, near))
    if plan.time_per_run is not None:
        row = ranking.fastest_in_budget
        if row is None:
            row = int(np.argmin(np.where(ranking.allowed, candidates.costs.run_seconds, np.inf)))
        (near,) = create_choices(candidates, ranking, [row])
        late = near.run_seconds - plan.time_per_run
        within = " in the budget" if near.in_budget and plan.budget is not None else ""
        if late > 0:
            sentence = (
                f"The time is short by {units.format_seconds(late)}: the fastest{within} is "
                f"{near.summary} at {units.format_seconds(near.run_seconds)} per run."
            )
            constraints.append(BindingConstraint("time", late, sentence, near))
    return tuple(constraints)
