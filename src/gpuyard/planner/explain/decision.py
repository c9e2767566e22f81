"""What comes next to the choice, and what would change it: another price, other runs, no deadline, what nobody knows."""

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from gpuyard import units
from gpuyard.planner.candidates import Candidates, Truths
from gpuyard.planner.explain.alternatives import SAME_COST, misses
from gpuyard.planner.explain.choices import choices
from gpuyard.planner.ranking import Ranking, plainest
from gpuyard.planner.result import ACQUIRED, Alternative, Choice, dollars, many
from gpuyard.predict.table import Integers

_MOST_SHOWN = 3
_CONTENDERS = 300  # of each acquisition, by each measure
_OTHER_RUNS = {
    "twice": (2.0, "With twice as many runs"),
    "four times": (4.0, "With four times as many runs"),
    "half": (0.5, "With half as many runs"),
    "a quarter": (0.25, "With a quarter of the runs"),
}
_OLD_YEARS = 2
_SPEEDS = 101  # tried between the slow end of a prediction and itself


def runners_up(
    candidates: Candidates, ranking: Ranking, winner: Choice | None, extended: Choice | None
) -> tuple[Alternative, ...]:
    """What is there already, with more beside it, the best that is acquired otherwise, the cheapest if the goal were none, the fastest, the best on
    another GPU: up to three that are not the choice."""
    if winner is None:
        return ()
    seen = {_machines(winner)}
    found: list[Alternative] = []
    nearest = (
        (n, choices(candidates, ranking, [r])[0]) for n, r in _nearest(candidates, ranking, winner)
    )
    more = [] if extended is None else [("what you have, with more", extended)]
    for name, choice in (*more, *nearest):
        if _machines(choice) in seen or len(found) == _MOST_SHOWN:
            continue
        seen.add(_machines(choice))
        found.append(Alternative(name, choice, _against(candidates, choice, winner)))
    return tuple(found)


def _against(candidates: Candidates, choice: Choice, winner: Choice) -> str:
    """In a few words, beside its time and cost."""
    said = misses(candidates, choice)
    ratio = choice.usd_per_run / winner.usd_per_run if winner.usd_per_run > 0 else 1.0
    if ratio >= SAME_COST:
        said.append(f"costs {ratio:.3g} × as much per run")
    hardly = "hardly costs more" if ratio > 1 else "costs as much"
    faster = ", and is faster" if choice.run_seconds < winner.run_seconds else ""
    return " and ".join(said) or f"{hardly}{faster}"


def _machines(choice: Choice) -> tuple[object, ...]:
    kept = tuple((one.offer, one.clusters) for one in choice.kept)
    return (choice.offer, choice.way, choice.nodes, choice.clusters, kept)


def _nearest(candidates: Candidates, ranking: Ranking, winner: Choice) -> Iterator[tuple[str, int]]:
    usd, feasible = candidates.costs.usd_per_run, ranking.feasible
    if winner.owned_way != "keep" and winner.way != "keep":
        mine = candidates.acquired_by("keep") & ranking.allowed
        best = _cheapest(candidates, mine & feasible if (mine & feasible).any() else mine)
        if best is not None:
            yield "what you have, kept", best
    otherwise = _cheapest(candidates, feasible & ~candidates.acquired_by(winner.way))
    if otherwise is not None:
        row = plainest(candidates, ranking, otherwise)
        way = candidates.offers[candidates.offer[row]].acquisition
        yield f"the best when {ACQUIRED[way]}", row
    if ranking.cheapest is not None and usd[ranking.cheapest] < winner.usd_per_run:
        yield "the cheapest that is allowed, whatever the goal", ranking.cheapest
    if ranking.fastest_in_budget is not None:
        within = " in the budget" if candidates.plan.budget is not None else ""
        yield f"the fastest{within}", ranking.fastest_in_budget
    gpu = np.array([o.server.gpu.id == winner.gpu for o in candidates.offers])[candidates.offer]
    other_gpu = _cheapest(candidates, feasible & ~gpu)
    if other_gpu is not None:
        yield "the best on another GPU", plainest(candidates, ranking, other_gpu)


def _cheapest(candidates: Candidates, among: Truths) -> int | None:
    rows = np.flatnonzero(among)
    return int(rows[np.argmin(candidates.costs.usd_per_run[rows])]) if len(rows) else None


def would_change(
    candidates: Candidates, ranking: Ranking, winner: Choice | None, rows: Sequence[int]
) -> tuple[str, ...]:
    """Each in a sentence, what is nearest first. `rows` are what the choice is made of."""
    if winner is None:
        return ()
    return (
        *_a_price(candidates, ranking, winner),
        *_other_runs(candidates, ranking, winner),
        *_without_deadline(candidates, ranking, winner),
        *_open_choice(candidates, ranking, winner, rows),
        *_slow_end(candidates, winner),
        *_slow_network(candidates, ranking, rows),
        *_fast_network(candidates, ranking, winner),
    )


def _a_price(candidates: Candidates, ranking: Ranking, winner: Choice) -> Iterator[str]:
    """How much dearer it may be, and how old its price is."""
    near = _cheapest(candidates, ranking.feasible & ~_same_machines(candidates, winner))
    if near is not None and winner.usd_per_run > 0:
        (other,) = choices(candidates, ranking, [plainest(candidates, ranking, near)])
        more = other.usd_per_run / winner.usd_per_run - 1
        if more > 0:
            yield (
                f"A {'cost' if winner.way == 'keep' else 'price'} that is {_percent(more)} higher: then {other.what}, at "
                f"{dollars(other.usd_per_run)} per run, would be cheaper."
            )
    dates = [o.server.price_date for o in candidates.offers if o.server.price_date]
    if winner.price_date is not None and dates:
        years = (max(dates) - datetime.date.fromisoformat(winner.price_date)).days / 365.25
        if years > _OLD_YEARS:
            yield (
                f"A quote: its price rests on one of {winner.price_date}, {units.format_years(round(years))} "
                "older than the newest here (prices.servers, prices.gpus)."
            )


def _open_choice(
    candidates: Candidates, ranking: Ranking, winner: Choice, rows: Sequence[int]
) -> Iterator[str]:
    """Where the cost of what comes next may be the lower one, the run that would settle it, and at what speed."""
    others = ranking.feasible & ~_same_machines(candidates, winner)
    near = _cheapest(candidates, others)
    if near is None or len(rows) != 1 or winner.rest is not None or winner.kept:
        return
    near = plainest(candidates, ranking, near)
    (other,) = choices(candidates, ranking, [near])
    if other.usd_per_run_low >= winner.usd_per_run_high:
        return
    at = np.full(_SPEEDS, rows[0])
    slow = winner.samples_per_second * winner.run_seconds / winner.run_seconds_high
    speeds = np.linspace(slow, winner.samples_per_second, _SPEEDS)
    dearer = candidates.priced(at, speeds).usd_per_run > other.usd_per_run
    where = "one machine" if winner.nodes == 1 else f"{winner.nodes} machines"
    settles = (
        f"{winner.gpus} × {winner.gpu} in {where} with a batch of {winner.batch_per_gpu} per GPU"
    )
    said = (
        f"A measurement: the choice is open, since a run may cost {dollars(winner.usd_per_run_low)} to "
        f"{dollars(winner.usd_per_run_high)}, and {other.what}, {dollars(other.usd_per_run_low)} to "
        f"{dollars(other.usd_per_run_high)}."
    )
    if dearer.any():
        least = float(speeds[dearer].max())
        yield (
            f"{said} A minute on {settles} would settle it: below {units.format_per_second(least)} samples/s "
            f"({units.format_per_second(winner.samples_per_second)} are predicted) the other is cheaper."
            f"{_smaller_run(candidates, rows[0])}"
        )
    else:
        yield (
            f"{said} It depends on how fast the other is: measure that one."
            f"{_smaller_run(candidates, near)}"
        )


def _smaller_run(candidates: Candidates, row: int) -> str:
    """What tells much of it and is easier to get."""
    run = candidates.next_run(row)
    return "" if run is None else f" A smaller run tells much of it: {run.words}."


def _same_machines(candidates: Candidates, winner: Choice) -> Truths:
    same = [offer.server.id == winner.offer for offer in candidates.offers]
    return np.asarray(np.array(same)[candidates.offer])


def _percent(share: float) -> str:
    return "under 1 %" if share < 0.01 else f"{100 * share:.0f} %"


def _other_runs(candidates: Candidates, ranking: Ranking, winner: Choice) -> Iterator[str]:
    """The nearest number of runs, more and fewer, at which something else is cheapest. A mix adapts by itself."""
    if winner.rest is not None or winner.kept:
        return
    rows = _contenders(candidates, ranking)
    for words in (("twice", "four times"), ("half", "a quarter")):
        for factor, start in (_OTHER_RUNS[word] for word in words):
            said = _cheapest_at(candidates, winner, rows, factor)
            if said is not None:
                now = candidates.runs.per_month_now * factor
                runs = f"{now:,.0f} per month now" if now >= 1000 else f"{now:.3g} per month now"
                yield f"{start} ({runs}), {said}"
                break


def _contenders(candidates: Candidates, ranking: Ranking) -> Integers:
    """In time and allowed in some number: those that cost least a run, or least to have."""
    possible = ranking.in_time.copy()
    for rule in ranking.rules:
        if not rule.of_size:
            possible &= ~rule.breaks
    costs = candidates.costs
    found = [np.zeros(0, dtype=np.int64)]
    for acquisition in candidates.plan.search.ways:
        rows = np.flatnonzero(possible & candidates.acquired_by(acquisition))
        found += [
            rows[np.argsort(measure[rows], kind="stable")[:_CONTENDERS]]
            for measure in (costs.usd_per_run, costs.total_usd / costs.clusters)
        ]
    return np.unique(np.concatenate(found))


def _cheapest_at(
    candidates: Candidates, winner: Choice, rows: Integers, factor: float
) -> str | None:
    """What is cheapest at so many times the runs, if that is not the choice."""
    plan, runs = candidates.plan, candidates.runs
    scaled = replace(
        candidates,
        runs=replace(
            runs,
            per_month_now=runs.per_month_now * factor,
            per_month_at_end=runs.per_month_at_end * factor,
        ),
    )
    costs = scaled.priced(rows, candidates.throughputs.samples_per_second[candidates.row[rows]])
    meets = np.ones(len(rows), dtype=bool)
    if plan.budget is not None:
        meets &= costs.total_usd <= plan.budget
    limit = candidates.premises.power
    if limit is not None:
        here = candidates.acquired_by(limit.acquisition)[rows]
        meets &= ~here | (costs.machine_watts <= limit.watts)
    nodes = candidates.throughputs.nodes[candidates.row[rows]]
    meets &= nodes * costs.clusters <= candidates.most_machines[rows]
    if not meets.any():
        return "no option meets the goal."
    best = int(np.argmin(np.where(meets, costs.usd_per_run, np.inf)))
    offer = candidates.offers[candidates.offer[rows[best]]]
    if (offer.server.id, offer.acquisition) == (winner.offer, winner.way):
        return None
    mine = [
        i
        for i, row in enumerate(rows)
        if meets[i]
        and candidates.offers[candidates.offer[row]].server.id == winner.offer
        and candidates.offers[candidates.offer[row]].acquisition == winner.way
    ]
    machines = int(candidates.throughputs.nodes[candidates.row[rows[best]]] * costs.clusters[best])
    cheaper = f"{many(machines)}{offer.server.name}, {ACQUIRED[offer.acquisition]}"
    usd = dollars(float(costs.usd_per_run[best]))
    if not mine:
        return f"{cheaper}, is the cheapest that meets the goal: {usd} per run."
    return f"{cheaper}, is cheaper: {usd} per run against {dollars(float(costs.usd_per_run[mine].min()))}."


def _without_deadline(candidates: Candidates, ranking: Ranking, winner: Choice) -> Iterator[str]:
    cheapest = ranking.cheapest
    if cheapest is None or ranking.in_time[cheapest] or candidates.plan.time_per_run is None:
        return
    (other,) = choices(candidates, ranking, [cheapest])
    if other.in_budget and other.usd_per_run < winner.usd_per_run:
        yield (
            f"The time limit costs {dollars(winner.usd_per_run - other.usd_per_run)} per run: without it, "
            f"{other.what}, would do it for {dollars(other.usd_per_run)} in "
            f"{units.format_seconds(other.run_seconds)}."
        )


def _slow_end(candidates: Candidates, winner: Choice) -> Iterator[str]:
    limit = candidates.plan.time_per_run
    if limit is not None and winner.run_seconds_high > limit:
        yield (
            f"A measurement: at the slow end of its interval a run takes "
            f"{units.format_seconds(winner.run_seconds_high)}, longer than the "
            f"{units.format_seconds(limit)}. Measuring one GPU would narrow it."
        )


def _slow_network(candidates: Candidates, ranking: Ranking, rows: Sequence[int]) -> Iterator[str]:
    """What the choice would be worth if the network that nobody knows were slow, where that matters."""
    limit = candidates.plan.time_per_run
    for row in rows:
        offer = candidates.offers[candidates.offer[row]]
        if not offer.network_assumed:
            continue
        at = np.array([row])
        slow = candidates.priced(at, candidates.throughputs.on_slow_network[candidates.row[at]])
        seconds, usd = float(slow.run_seconds[0]), float(slow.usd_per_run[0])
        others = ranking.feasible & candidates.network_known
        if len(rows) > 1:  # a mix: by the run, too
            others &= candidates.acquired_by("on-demand", "spot")
        near = _cheapest(candidates, others)
        why = ""
        if limit is not None and seconds > limit:
            why = f"longer than the {units.format_seconds(limit)}"
        elif near is not None and candidates.costs.usd_per_run[near] < usd:
            (other,) = choices(candidates, ranking, [near])
            why = f"more than {other.what} at {dollars(other.usd_per_run)}"
        if why:
            yield (
                f"The network between several {offer.server.name}: nobody says what it is, and 10 Gbit/s is assumed. "
                f"At 5 Gbit/s a run takes {units.format_seconds(seconds)} and costs {dollars(usd)}, {why}."
            )


def _fast_network(candidates: Candidates, ranking: Ranking, winner: Choice) -> Iterator[str]:
    """What would beat the choice if the network that nobody knows were fast."""
    rows = np.flatnonzero(ranking.allowed & ~candidates.network_known)
    if not len(rows):
        return
    plan = candidates.plan
    fast = candidates.priced(rows, candidates.throughputs.on_fast_network[candidates.row[rows]])
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
            f"A fast network: nobody says how several {offer.server.name} are joined. At 100 Gbit/s instead of the "
            f"assumed 10, {many(nodes)}{offer.server.name}, {ACQUIRED[offer.acquisition]}, would cost "
            f"{dollars(float(fast.usd_per_run[best]))} per run."
        )
