"""Why the choice is the choice; and where nothing meets the goal, what is short by how much."""

import numpy as np

from gpuyard import units
from gpuyard.economics.ownership import owned_usd
from gpuyard.planner.candidates import Candidates
from gpuyard.planner.costs import owned_machines
from gpuyard.planner.explain.choices import choices, mixed_choices
from gpuyard.planner.mixes import Mixes
from gpuyard.planner.offers import OWNED, years_of
from gpuyard.planner.ranking import HARDLY_WORSE, Ranking
from gpuyard.planner.result import (
    ACQUIRED,
    Alternative,
    Binding,
    Choice,
    RentedRest,
    dollars,
    many,
    share_of_runs,
)
from gpuyard.specs.plan import Acquisition, Plan


def goal_words(plan: Plan) -> str:
    parts = []
    if plan.time_per_run is not None:
        parts.append(f"a run in {units.format_seconds(plan.time_per_run)}")
    if plan.budget is not None:
        over = f"over {units.format_years(years_of(plan))}"
        parts.append(f"at most {dollars(plan.budget)} {over}")
    return ", ".join(parts)


def verdict(plan: Plan, winner: Choice | None, binding: tuple[Binding, ...]) -> str:
    if winner is not None:
        return f"{winner.what}: {winner.price}, {winner.duration}, trained in {winner.precision}."
    sentences = " ".join(bound.sentence for bound in binding)
    goal = goal_words(plan)
    return f"No option {f'meets the goal ({goal})' if goal else 'is allowed'}. {sentences}"


def reasons(
    candidates: Candidates, ranking: Ranking, winner: Choice, hybrid: Alternative | None
) -> tuple[str, ...]:
    """The sentences that decided it, the strongest first."""
    plan = candidates.plan
    feasible = int(ranking.feasible.sum())
    goal = goal_words(plan)
    found = [
        f"{feasible:,} of {len(candidates):,} candidates "
        f"{f'meet the goal ({goal})' if goal else 'are allowed'}. These machines cost least per finished "
        f"run, in the simplest setting within {units.format_share(HARDLY_WORSE)} of the best.",
        _efficiency(winner),
    ]
    if winner.kept:
        found += _extended(candidates, winner)
    elif winner.rest is not None:
        found.append(_mixed(candidates, winner, winner.rest))
    elif winner.way == "keep":
        found.append(_kept(candidates, winner))
    elif winner.way in OWNED or winner.way.startswith("reserved"):
        found.append(_filled(candidates, winner))
    found += _other_acquisitions(candidates, ranking, winner)
    found += _not_used(candidates, ranking, winner)
    if hybrid is not None and winner.rest is None and not candidates.plan.policy.data_stays:
        found.append(f"Own some and rent the rest: {hybrid.sentence}")
    return tuple(found)


def _efficiency(winner: Choice) -> str:
    if winner.gpus == 1:
        return f"One GPU is enough: {winner.setting}."
    return (
        f"{winner.gpus} GPUs at {units.format_share(winner.scaling_efficiency)} efficiency are "
        f"{winner.effective_gpus:.3g} effective GPUs: {winner.setting}."
    )


def _mixed(candidates: Candidates, winner: Choice, rest: RentedRest) -> str:
    runs = candidates.runs
    machines = winner.nodes * winner.clusters
    return (
        f"Of {runs.total:,.0f} runs over {units.format_years(runs.years)} the {machines} owned "
        f"machine{'s do' if machines > 1 else ' does'} {share_of_runs(1 - rest.share_of_runs)} and "
        f"{'are' if machines > 1 else 'is'} busy {units.format_share(winner.utilisation)} of the time; "
        f"{_no_more(candidates, winner)}. The rest is rented at {dollars(rest.usd_per_run)} per run, "
        f"{dollars(winner.total_usd)} total."
    )


def _kept(candidates: Candidates, winner: Choice) -> str:
    runs = candidates.runs
    server = next(o.server for o in candidates.offers if o.server.id == winner.offer)
    return (
        f"You have {server.owned}: keeping {winner.nodes * winner.clusters} costs the "
        f"{dollars(server.value_usd)} that each would sell for, and what they need to run, {dollars(winner.total_usd)} "
        f"total. {runs.total:,.0f} runs over {units.format_years(runs.years)} keep them busy "
        f"{units.format_share(winner.utilisation)} of the time."
    )


def _extended(candidates: Candidates, winner: Choice) -> list[str]:
    """What is kept, what is added, and why a run is never on both."""
    runs = candidates.runs
    found = [
        f"Of {runs.total:,.0f} runs over {units.format_years(runs.years)} {part.machines}, kept, does "
        f"{share_of_runs(part.share_of_runs)} in {units.format_seconds(part.run_seconds)} each and is busy "
        f"{units.format_share(part.utilisation)} of the time, {dollars(part.total_usd)} total."
        for part in winner.kept
    ]
    own = sum(part.share_of_runs for part in winner.kept)
    rented = winner.rest.share_of_runs if winner.rest else 0.0
    found.append(
        f"{many(winner.nodes * winner.clusters)}{winner.name}, {winner.how_acquired}, does "
        f"{share_of_runs(1 - own - rented)} and is busy {units.format_share(winner.utilisation)} of the time. "
        "Each run is on machines of one kind: in one job all GPUs would wait for the slowest in every step."
    )
    return found


def _not_used(candidates: Candidates, ranking: Ranking, winner: Choice) -> list[str]:
    """What becomes of machines that are there and have no part in the choice."""
    used = {part.offer: part.nodes * part.clusters for part in winner.kept}
    if "keep" in (winner.way, winner.owned_way):
        used[winner.offer] = winner.nodes * winner.clusters
    found = []
    for server in {
        o.server.id: o.server for o in candidates.offers if o.acquisition == "keep"
    }.values():
        left = (server.owned or 0) - used.get(server.id, 0)
        if left <= 0:
            continue
        mine = np.array([o.server.id == server.id for o in candidates.offers])[candidates.offer]
        possible = mine & ~ranking.impossible
        fastest = np.min(candidates.costs.run_seconds, where=possible, initial=np.inf)
        who = f"{server.name}, which you have,"
        if server.id in used:
            who, why = f"Of your {server.owned} × {server.name},", f"{left} would not pay here"
        elif not possible.any():
            why = (
                "can't do these runs ("
                + "; ".join(
                    rule.reason
                    for rule in ranking.rules
                    if not rule.of_size and (rule.breaks & mine).any()
                )
                + ")"
            )
        elif not (possible & ranking.in_time).any():
            why = f"takes {units.format_seconds(float(fastest))} for a run, which is too long"
        else:
            why = "costs more to run than it saves here"
        row = np.flatnonzero(mine)[:1]
        nodes = int(candidates.throughputs.nodes[candidates.row[row[0]]])
        idle = owned_machines(
            candidates.plan, candidates.premises, candidates.rows(row, np.ones(1)), "keep",
            clusters=1.0 / nodes, utilisation=0.0, years=candidates.runs.years,
        )  # fmt: skip
        monthly = float(owned_usd(idle, candidates.runs.years)[0]) / candidates.runs.months
        found.append(
            f"{who} {why}. For smaller jobs each costs {dollars(monthly)} per month to keep, "
            f"idle, with what it loses in value; selling one brings {dollars(server.value_usd)}."
        )
    return found


def _no_more(candidates: Candidates, winner: Choice) -> str:
    """Why not another cluster is owned."""
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


def _filled(candidates: Candidates, winner: Choice) -> str:
    runs = candidates.runs
    return (
        f"You pay for it even when it is idle: {runs.total:,.0f} runs over {units.format_years(runs.years)} "
        f"keep it busy {units.format_share(winner.utilisation)} of the time, "
        f"{dollars(winner.total_usd)} total."
    )


def _other_acquisitions(candidates: Candidates, ranking: Ranking, winner: Choice) -> list[str]:
    """The best of each other acquisition that would do as well."""
    usd = candidates.costs.usd_per_run
    rows: list[int] = []
    none: list[Acquisition] = []
    for acquisition in candidates.plan.search.ways:
        if acquisition == winner.way:
            continue
        mine = candidates.acquired_by(acquisition)
        chosen = np.flatnonzero(ranking.feasible & mine)
        if len(chosen):
            rows.append(int(chosen[np.argmin(usd[chosen])]))
        elif np.any(mine):
            none.append(acquisition)
    rows.sort(key=lambda row: float(usd[row]))
    found = [
        f"Best option when {other.how_acquired}: {other.machines}, "
        f"{dollars(other.usd_per_run)} per run, {units.format_seconds(other.run_seconds)}."
        for other in choices(candidates, ranking, rows)
    ]
    if none:
        *most, last = (ACQUIRED[acquisition] for acquisition in none)
        listed = f"{', '.join(most)} or {last}" if most else last
        found.append(f"No option meets the goal when {listed}.")
    return found


def bindings(candidates: Candidates, ranking: Ranking, mixes: Mixes) -> tuple[Binding, ...]:
    """What the goal fails on, each by itself."""
    plan = candidates.plan
    if not ranking.allowed.any():
        counted = "; ".join(
            f"{int(rule.breaks.sum()):,} because: {rule.reason}"
            for rule in ranking.rules
            if rule.breaks.any()
        )
        sentence = (
            f"All {len(candidates):,} candidates are ruled out: {counted or 'none was tried'}."
        )
        return (Binding("rules", 0.0, sentence, None),)
    found = []
    if plan.budget is not None and ranking.cheapest_in_time is not None:
        (near,) = choices(candidates, ranking, [ranking.cheapest_in_time])
        mixed = mixes.cheapest(mixes.mixed & mixes.in_time)
        if mixed is not None and mixes.total_usd[mixed] < near.total_usd:
            (near,) = mixed_choices(candidates, ranking, mixes, [mixed])
        over = near.total_usd - plan.budget
        in_time = " in time" if plan.time_per_run is not None else ""
        sentence = (
            f"The budget is short by {dollars(over)}: the cheapest that finishes{in_time} is "
            f"{near.what} at {dollars(near.total_usd)} total."
        )
        found.append(Binding("budget", over, sentence, near))
    if plan.time_per_run is not None:
        row = ranking.fastest_in_budget
        if row is None:
            row = int(np.argmin(np.where(ranking.allowed, candidates.costs.run_seconds, np.inf)))
        (near,) = choices(candidates, ranking, [row])
        late = near.run_seconds - plan.time_per_run
        within = " in the budget" if near.in_budget and plan.budget is not None else ""
        if late > 0:
            sentence = (
                f"The time is short by {units.format_seconds(late)}: the fastest{within} is "
                f"{near.what} at {units.format_seconds(near.run_seconds)} per run."
            )
            found.append(Binding("time", late, sentence, near))
    return tuple(found)
