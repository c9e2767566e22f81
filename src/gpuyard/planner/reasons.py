"""Why the choice is the choice; and where nothing meets the goal, what stands in the way by how much."""

import numpy as np

from gpuyard import units
from gpuyard.planner import words
from gpuyard.planner.candidates import Candidates
from gpuyard.planner.choices import choices, mixed_choices
from gpuyard.planner.mixes import Mixes
from gpuyard.planner.offers import OWNED, years_of
from gpuyard.planner.ranking import HARDLY_WORSE, Ranking
from gpuyard.planner.result import Alternative, Binding, Choice, RentedRest
from gpuyard.specs.plan import Acquisition, Plan


def goal_words(plan: Plan) -> str:
    parts = []
    if plan.time_per_run is not None:
        parts.append(f"finishes a run in {words.hours(plan.time_per_run)}")
    if plan.budget is not None:
        over = f"over {units.format_years(years_of(plan))}"
        parts.append(f"costs at most {words.usd(plan.budget)} {over}")
    return " and ".join(parts)


def _bracketed(text: str) -> str:
    return f" ({text})" if text else ""


def verdict(plan: Plan, winner: Choice | None, binding: tuple[Binding, ...]) -> str:
    if winner is not None:
        return f"{words.what(winner)}: {words.price(winner)}, {words.duration(winner)}."
    sentences = " ".join(bound.sentence for bound in binding)
    return f"Nothing that was tried {goal_words(plan) or 'is allowed'}. {sentences}"


def reasons(
    candidates: Candidates, ranking: Ranking, winner: Choice, hybrid: Alternative | None
) -> tuple[str, ...]:
    """The sentences that decided it, the strongest first."""
    plan = candidates.plan
    feasible = int(np.sum(ranking.allowed & ranking.in_time & ranking.in_budget))
    found = [
        f"Of {len(candidates):,} candidates {feasible:,} would do{_bracketed(goal_words(plan))}; "
        "these machines cost least for a finished run, in the plainest setting that gives away "
        f"no more than {units.format_share(HARDLY_WORSE)}.",
        _efficiency(winner),
    ]
    if winner.rest is not None:
        found.append(_mixed(candidates, winner, winner.rest))
    elif winner.way in OWNED or winner.way.startswith("reserved"):
        found.append(_filled(candidates, winner))
    found += _without_deadline(candidates, ranking, winner)
    found += _other_acquisitions(candidates, ranking, winner)
    if hybrid is not None and winner.rest is None and not candidates.plan.policy.data_stays:
        found.append(f"Own some and rent the rest: {hybrid.sentence}")
    if plan.time_per_run is not None and winner.run_seconds_high > plan.time_per_run:
        found.append(
            f"Mind the interval: at its slow end a run takes {words.hours(winner.run_seconds_high)}, "
            f"past the {words.hours(plan.time_per_run)}. A measurement of one GPU would narrow it."
        )
    return tuple(found)


def _efficiency(winner: Choice) -> str:
    if winner.gpus == 1:
        return f"One GPU does it: {words.setting(winner)}."
    return (
        f"{winner.gpus} GPUs at {units.format_share(winner.scaling_efficiency)} efficiency do the "
        f"work of {winner.effective_gpus:.3g}: {words.setting(winner)}."
    )


def _mixed(candidates: Candidates, winner: Choice, rest: RentedRest) -> str:
    runs = candidates.runs
    machines = winner.nodes * winner.clusters
    return (
        f"Of {runs.total:,.0f} runs over {units.format_years(runs.years)} the {machines} owned "
        f"machine{'s do' if machines > 1 else ' does'} {words.share_of_runs(1 - rest.share_of_runs)} and "
        f"{'are' if machines > 1 else 'is'} busy {units.format_share(winner.utilisation)} of the time; "
        f"{_no_more(candidates, winner)}. The rest is rented at {words.usd(rest.usd_per_run)} a run, "
        f"{words.usd(winner.total_usd)} in all."
    )


def _no_more(candidates: Candidates, winner: Choice) -> str:
    """Why not another cluster is owned."""
    limit = candidates.premises.power
    if limit is not None and limit.way == winner.owned_way:
        watts = next(o.server.watts for o in candidates.offers if o.server.id == winner.offer)
        if watts * winner.nodes * (winner.clusters + 1) > limit.watts:
            return "there is no power for more"
    return "more of them would stand idle too often"


def _filled(candidates: Candidates, winner: Choice) -> str:
    runs = candidates.runs
    return (
        f"It is paid whether it works or not: {runs.total:,.0f} runs over {units.format_years(runs.years)} "
        f"keep it busy {units.format_share(winner.utilisation)} of the time, "
        f"{words.usd(winner.total_usd)} in all."
    )


def _without_deadline(candidates: Candidates, ranking: Ranking, winner: Choice) -> list[str]:
    cheapest = ranking.cheapest
    if cheapest is None or ranking.in_time[cheapest] or candidates.plan.time_per_run is None:
        return []
    (other,) = choices(candidates, ranking, [cheapest])
    if not other.in_budget or other.usd_per_run >= winner.usd_per_run:
        return []
    return [
        f"The time limit costs {words.usd(winner.usd_per_run - other.usd_per_run)} a run: without it, "
        f"{words.what(other)} would do for {words.usd(other.usd_per_run)} in "
        f"{words.hours(other.run_seconds)}."
    ]


def _other_acquisitions(candidates: Candidates, ranking: Ranking, winner: Choice) -> list[str]:
    """The best of each other acquisition that would do as well."""
    acquisitions = candidates.plan.search.ways
    feasible = ranking.allowed & ranking.in_time & ranking.in_budget
    acquisition_of = candidates.columns.acquisition[candidates.offer]
    usd = candidates.costs.usd_per_run
    rows: list[int] = []
    none: list[Acquisition] = []
    for code, acquisition in enumerate(acquisitions):
        if acquisition == winner.way:
            continue
        chosen = np.flatnonzero(feasible & (acquisition_of == code))
        if len(chosen):
            rows.append(int(chosen[np.argmin(usd[chosen])]))
        elif np.any(acquisition_of == code):
            none.append(acquisition)
    rows.sort(key=lambda row: float(usd[row]))
    found = [
        f"The best that is {words.acquired(other)} is {words.machines(other)}: "
        f"{words.usd(other.usd_per_run)} a run, {words.hours(other.run_seconds)}."
        for other in choices(candidates, ranking, rows)
    ]
    if none:
        listed = ", ".join(words.ACQUIRED[acquisition] for acquisition in none)
        found.append(f"Nothing would do that is: {listed}.")
    return found


def bindings(candidates: Candidates, ranking: Ranking, mixes: Mixes) -> tuple[Binding, ...]:
    """What stands in the way, each by itself."""
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
            f"The budget is short by {words.usd(over)}: the cheapest that finishes{in_time} is "
            f"{words.what(near)} at {words.usd(near.total_usd)} in all."
        )
        found.append(Binding("budget", over, sentence, near))
    if plan.time_per_run is not None:
        row = ranking.fastest_in_budget
        if row is None:
            row = int(ranking.front[0])
        (near,) = choices(candidates, ranking, [row])
        late = near.run_seconds - plan.time_per_run
        within = " in the budget" if near.in_budget and plan.budget is not None else ""
        if late > 0:
            sentence = (
                f"The time is short by {words.hours(late)}: the fastest{within} is "
                f"{words.what(near)} at {words.hours(near.run_seconds)} a run."
            )
            found.append(Binding("time", late, sentence, near))
    return tuple(found)
