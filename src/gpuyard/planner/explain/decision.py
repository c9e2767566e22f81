"""The runners-up, and what would change the decision: another price, other runs, no deadline, or a measurement."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from gpuyard import units
from gpuyard.planner.candidates import Booleans, Candidates
from gpuyard.planner.choice import ACQUISITION_LABELS, Choice, format_count, format_dollars
from gpuyard.planner.choices import create_choices
from gpuyard.planner.explain.alternatives import SAME_COST, describe_misses
from gpuyard.planner.explain.price_basis import list_price_changes, same_server
from gpuyard.planner.ranking import Ranking, find_simplest_setting
from gpuyard.planner.result import Alternative
from gpuyard.predictor.table import Integers

_MAX_SHOWN = 3
_MAX_CONTENDERS = 300  # of each acquisition, by each measure
_MORE_RUNS = ((2.0, "With twice as many runs"), (4.0, "With four times as many runs"))
_FEWER_RUNS = ((0.5, "With half as many runs"), (0.25, "With a quarter of the runs"))
_SPEEDS = 101  # tried between the slow end of a prediction and the prediction itself


def find_runners_up(
    candidates: Candidates, ranking: Ranking, winner: Choice | None, expanded: Choice | None
) -> tuple[Alternative, ...]:
    """Return up to three alternatives to the winner.

    They are, in this order: the machines you have with additions, the machines you have, the best acquired in another
    way, the cheapest regardless of the goal, the fastest, and the best on another GPU.
    """
    if winner is None:
        return ()
    named = [] if expanded is None else [("what you have, with additions", expanded)]
    named += [
        (name, create_choices(candidates, ranking, [row])[0])
        for name, row in _list_runners_up(candidates, ranking, winner)
    ]
    shown = {_machines_key(winner)}
    runners_up: list[Alternative] = []
    for name, choice in named:
        key = _machines_key(choice)
        if key not in shown and len(runners_up) < _MAX_SHOWN:
            shown.add(key)
            runners_up.append(Alternative(name, choice, _compare(candidates, choice, winner)))
    return tuple(runners_up)


def _compare(candidates: Candidates, choice: Choice, winner: Choice) -> str:
    """Compare a choice with the winner in a few words, to go next to its time and cost."""
    differences = describe_misses(candidates, choice)
    ratio = choice.usd_per_run / winner.usd_per_run if winner.usd_per_run > 0 else 1.0
    if ratio >= SAME_COST:
        differences.append(f"costs {units.format_number(ratio)} × as much per run")
    same_cost = "costs nearly the same" if ratio > 1 else "costs as much"
    faster = " and is faster" if choice.run_seconds < winner.run_seconds else ""
    return " and ".join(differences) or f"{same_cost}{faster}"


def _machines_key(choice: Choice) -> tuple[object, ...]:
    kept = tuple((part.offer, part.clusters) for part in choice.kept)
    return (choice.offer, choice.way, choice.nodes, choice.clusters, kept)


def _list_runners_up(
    candidates: Candidates, ranking: Ranking, winner: Choice
) -> Iterator[tuple[str, int]]:
    usd, feasible = candidates.costs.usd_per_run, ranking.feasible
    if winner.owned_way != "keep" and winner.way != "keep":
        kept = candidates.acquired_by("keep") & ranking.allowed
        best = _find_cheapest(candidates, kept & feasible if (kept & feasible).any() else kept)
        if best is not None:
            yield "what you have, kept", best
    other_way = _find_cheapest(candidates, feasible & ~candidates.acquired_by(winner.way))
    if other_way is not None:
        row = find_simplest_setting(candidates, ranking, other_way)
        way = candidates.offers[candidates.offer[row]].acquisition
        yield f"the best when {ACQUISITION_LABELS[way]}", row
    if ranking.cheapest is not None and usd[ranking.cheapest] < winner.usd_per_run:
        yield "the cheapest that is allowed, whatever the goal", ranking.cheapest
    if ranking.fastest_in_budget is not None:
        within = " in the budget" if candidates.plan.budget is not None else ""
        yield f"the fastest{within}", ranking.fastest_in_budget
    gpu = np.array([o.server.gpu.id == winner.gpu for o in candidates.offers])[candidates.offer]
    other_gpu = _find_cheapest(candidates, feasible & ~gpu)
    if other_gpu is not None:
        yield "the best on another GPU", find_simplest_setting(candidates, ranking, other_gpu)


def _find_cheapest(candidates: Candidates, among: Booleans) -> int | None:
    rows = np.flatnonzero(among)
    return int(rows[np.argmin(candidates.costs.usd_per_run[rows])]) if len(rows) else None


def list_decision_changes(
    candidates: Candidates, ranking: Ranking, winner: Choice | None, rows: Sequence[int]
) -> tuple[str, ...]:
    """List what would change the decision, one sentence each. `rows` are the rows of the winner."""
    if winner is None:
        return ()
    return (
        *list_price_changes(candidates, ranking, winner),
        *_check_other_runs(candidates, ranking, winner),
        *_check_deadline(candidates, ranking, winner),
        *_check_overlap(candidates, ranking, winner, rows),
        *_check_slow_end(candidates, winner),
        *_check_slow_network(candidates, ranking, rows),
        *_check_fast_network(candidates, ranking, winner),
    )


def _check_overlap(
    candidates: Candidates, ranking: Ranking, winner: Choice, rows: Sequence[int]
) -> Iterator[str]:
    """If the speeds predicted for the winner and the next best leave the choice open, report the run that would decide.

    Both are at their typical prices: a run does not settle what they cost to buy.
    """
    others = ranking.feasible & ~same_server(candidates, winner)
    near = _find_cheapest(candidates, others)
    if near is None or len(rows) != 1 or winner.rest is not None or winner.kept:
        return
    near = find_simplest_setting(candidates, ranking, near)
    (other,) = create_choices(candidates, ranking, [near])
    winner_low, winner_high = _price_speed_interval(candidates, rows[0])
    other_low, other_high = _price_speed_interval(candidates, near)
    if other_low >= winner_high:
        return
    repeated = np.full(_SPEEDS, rows[0])
    slow = winner.samples_per_second * winner.run_seconds / winner.run_seconds_high
    speeds = np.linspace(slow, winner.samples_per_second, _SPEEDS)
    costs_more = candidates.price(repeated, speeds).usd_per_run > other.usd_per_run
    machines = "one machine" if winner.nodes == 1 else f"{winner.nodes} machines"
    how = (
        f"a batch of {winner.batch_per_gpu} per GPU"
        if winner.layout is None
        else winner.layout.method
    )
    remedy = f", {winner.remedy_words}," if winner.remedy_words else ""
    run = f"{winner.gpus} × {winner.gpu} in {machines} with {how}{remedy}"
    unit, scale = (
        ("tokens/s", winner.tokens_per_second / winner.samples_per_second)
        if winner.layout is not None and winner.tokens_per_second
        else ("samples/s", 1.0)
    )
    overlap = (
        f"A measurement: the choice is open, because at the ends of the predicted speeds a run costs "
        f"{format_dollars(winner_low)} to {format_dollars(winner_high)}, and on {other.summary}, "
        f"{format_dollars(other_low)} to {format_dollars(other_high)}."
    )
    if costs_more.any():
        threshold = float(speeds[costs_more].max())
        yield (
            f"{overlap} A minute on {run} would settle it: below {units.format_per_second(scale * threshold)} {unit} "
            f"(predicted: {units.format_per_second(scale * winner.samples_per_second)}) the other is cheaper."
            f"{_suggest_smaller_run(candidates, rows[0])}"
        )
    else:
        yield (
            f"{overlap} It depends on the speed of the other one: measure that."
            f"{_suggest_smaller_run(candidates, near)}"
        )


def _price_speed_interval(candidates: Candidates, row: int) -> tuple[float, float]:
    """Return the cost per run at the fast and at the slow end of the prediction."""
    rows, predicted = np.array([row]), candidates.throughputs
    fast, slow = (
        float(candidates.price(rows, speeds[candidates.row[rows]]).usd_per_run[0])
        for speeds in (predicted.high, predicted.low)
    )
    return fast, slow


def _suggest_smaller_run(candidates: Candidates, row: int) -> str:
    """Suggest a run on fewer GPUs that is easier to get and still informative."""
    run = candidates.suggest_next_run(row)
    return "" if run is None else f" {run.description}."


def _check_other_runs(candidates: Candidates, ranking: Ranking, winner: Choice) -> Iterator[str]:
    """Report the nearest number of runs, more and fewer, at which another option is cheapest.

    A mix adapts to the number of runs by itself.
    """
    if winner.rest is not None or winner.kept:
        return
    rows = _find_contenders(candidates, ranking)
    for factors in (_MORE_RUNS, _FEWER_RUNS):
        for factor, start in factors:
            cheapest = _describe_cheapest_at(candidates, winner, rows, factor)
            if cheapest is not None:
                now = candidates.runs.per_month_now * factor
                runs = f"{now:,.0f} per month now" if now >= 1000 else f"{now:.3g} per month now"
                yield f"{start} ({runs}), {cheapest}"
                break


def _find_contenders(candidates: Candidates, ranking: Ranking) -> Integers:
    """Return candidates in time and allowed in some number with the lowest cost per run or per cluster."""
    possible = ranking.in_time.copy()
    for rule in ranking.rules:
        if not rule.depends_on_size:
            possible &= ~rule.breaks
    costs = candidates.costs
    contenders = [np.zeros(0, dtype=np.int64)]
    for acquisition in candidates.plan.search.ways:
        rows = np.flatnonzero(possible & candidates.acquired_by(acquisition))
        contenders += [
            rows[np.argsort(measure[rows], kind="stable")[:_MAX_CONTENDERS]]
            for measure in (costs.usd_per_run, costs.total_usd / costs.clusters)
        ]
    return np.unique(np.concatenate(contenders))


def _describe_cheapest_at(
    candidates: Candidates, winner: Choice, rows: Integers, factor: float
) -> str | None:
    """Describe the cheapest option at a multiple of the runs, or return None if it is the winner."""
    plan, runs = candidates.plan, candidates.runs
    scaled = replace(
        candidates,
        runs=replace(
            runs,
            per_month_now=runs.per_month_now * factor,
            per_month_at_end=runs.per_month_at_end * factor,
        ),
    )
    costs = scaled.price(rows, candidates.throughputs.samples_per_second[candidates.row[rows]])
    meets = np.ones(len(rows), dtype=bool)
    if plan.budget is not None:
        meets &= costs.total_usd <= plan.budget
    limit = candidates.premises.power
    if limit is not None:
        limited = candidates.acquired_by(limit.acquisition)[rows]
        meets &= ~limited | (costs.machine_watts <= limit.watts)
    nodes = candidates.throughputs.nodes[candidates.row[rows]]
    meets &= nodes * costs.clusters <= candidates.max_machines[rows]
    if not meets.any():
        return "no option meets the goal."
    best = int(np.argmin(np.where(meets, costs.usd_per_run, np.inf)))
    offer = candidates.offers[candidates.offer[rows[best]]]
    if (offer.server.id, offer.acquisition) == (winner.offer, winner.way):
        return None
    winner_rows = [
        i
        for i, row in enumerate(rows)
        if meets[i]
        and candidates.offers[candidates.offer[row]].server.id == winner.offer
        and candidates.offers[candidates.offer[row]].acquisition == winner.way
    ]
    machines = int(candidates.throughputs.nodes[candidates.row[rows[best]]] * costs.clusters[best])
    cheaper = (
        f"{format_count(machines)}{offer.server.name}, {ACQUISITION_LABELS[offer.acquisition]}"
    )
    usd = format_dollars(float(costs.usd_per_run[best]))
    if not winner_rows:
        return f"{cheaper}, is the cheapest that meets the goal: {usd} per run."
    winner_usd = format_dollars(float(costs.usd_per_run[winner_rows].min()))
    return f"{cheaper}, is cheaper: {usd} per run against {winner_usd}."


def _check_deadline(candidates: Candidates, ranking: Ranking, winner: Choice) -> Iterator[str]:
    """Report what the time limit costs."""
    cheapest = ranking.cheapest
    if cheapest is None or ranking.in_time[cheapest] or candidates.plan.time_per_run is None:
        return
    (other,) = create_choices(candidates, ranking, [cheapest])
    if other.in_budget and other.usd_per_run < winner.usd_per_run:
        yield (
            f"The time limit costs {format_dollars(winner.usd_per_run - other.usd_per_run)} per run: without it, "
            f"{other.summary}, would do it for {format_dollars(other.usd_per_run)} in "
            f"{units.format_seconds(other.run_seconds)}."
        )


def _how_to_narrow(winner: Choice) -> str:
    if winner.layout is None:
        return "Measuring one GPU would narrow it."
    return "A measured figure under 'parallel.measured' would narrow it."


def _check_slow_end(candidates: Candidates, winner: Choice) -> Iterator[str]:
    """Report if the slow end of the prediction misses the time limit."""
    limit = candidates.plan.time_per_run
    if limit is not None and winner.run_seconds_high > limit:
        yield (
            f"A measurement: at the slow end of its interval a run takes "
            f"{units.format_seconds(winner.run_seconds_high)}, longer than the "
            f"{units.format_seconds(limit)}. {_how_to_narrow(winner)}"
        )


def _check_slow_network(
    candidates: Candidates, ranking: Ranking, rows: Sequence[int]
) -> Iterator[str]:
    """Report if the winner would lose should its unknown network be slow."""
    limit = candidates.plan.time_per_run
    for row in rows:
        offer = candidates.offers[candidates.offer[row]]
        if not offer.network_assumed:
            continue
        slow_rate = candidates.throughputs.on_slow_network[candidates.row[[row]]]
        slow = candidates.price(np.array([row]), slow_rate)
        seconds, usd = float(slow.run_seconds[0]), float(slow.usd_per_run[0])
        others = ranking.feasible & candidates.network_known
        if len(rows) > 1:  # the rest of a mix is rented by the run
            others &= candidates.acquired_by("on-demand", "spot")
        near = _find_cheapest(candidates, others)
        why = ""
        if limit is not None and seconds > limit:
            why = f"longer than the {units.format_seconds(limit)}"
        elif near is not None and candidates.costs.usd_per_run[near] < usd:
            (other,) = create_choices(candidates, ranking, [near])
            why = f"more than {other.summary} at {format_dollars(other.usd_per_run)}"
        if why:
            yield (
                f"The network between several {offer.server.name}: it is unknown, and 10 Gbit/s is assumed. "
                f"At 5 Gbit/s a run takes {units.format_seconds(seconds)} and costs {format_dollars(usd)}, {why}."
            )


def _check_fast_network(candidates: Candidates, ranking: Ranking, winner: Choice) -> Iterator[str]:
    """Report the candidate that would beat the winner should its unknown network be fast."""
    rows = np.flatnonzero(ranking.allowed & ~candidates.network_known)
    if not len(rows):
        return
    plan = candidates.plan
    fast = candidates.price(rows, candidates.throughputs.on_fast_network[candidates.row[rows]])
    meets = fast.usd_per_run < winner.usd_per_run
    if plan.time_per_run is not None:
        meets &= fast.run_seconds <= plan.time_per_run
    if plan.budget is not None:
        meets &= fast.total_usd <= plan.budget
    if not meets.any():
        return
    best = int(np.argmin(np.where(meets, fast.usd_per_run, np.inf)))
    offer = candidates.offers[candidates.offer[rows[best]]]
    nodes = int(candidates.throughputs.nodes[candidates.row[rows[best]]])
    if (offer.server.id, offer.acquisition, nodes) != (winner.offer, winner.way, winner.nodes):
        yield (
            f"A fast network: the network between several {offer.server.name} is unknown. At 100 Gbit/s instead of the "
            f"assumed 10, {format_count(nodes)}{offer.server.name}, {ACQUISITION_LABELS[offer.acquisition]}, would cost "
            f"{format_dollars(float(fast.usd_per_run[best]))} per run."
        )
