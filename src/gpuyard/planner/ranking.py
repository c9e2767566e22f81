"""Which candidates are allowed, which of them nobody beats, and which one the goal picks."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from gpuyard.planner.candidates import Candidates, Truths
from gpuyard.predict.table import Floats, Integers

HARDLY_WORSE = 0.03
DATA_STAYS = "data may not leave the building"


@dataclass(frozen=True)
class Rule:
    """Something that keeps candidates out, whatever they cost."""

    reason: str
    breaks: Truths
    of_setting: bool = False  # another batch or remedy of the same offer may keep it
    of_size: bool = False  # fewer of the same machines may keep it
    details: Mapping[int, str] = field(default_factory=dict)  # by offer, where each has its own

    def words(self, offer: int) -> str:
        """Why it keeps this offer out."""
        return f"{self.reason}: {self.details[offer]}" if offer in self.details else self.reason


@dataclass(frozen=True)
class Ranking:
    """The candidates sorted out. Indices are into the candidates."""

    rules: tuple[Rule, ...]
    allowed: Truths
    in_time: Truths
    in_budget: Truths
    front: Integers  # in the budget, the fastest first
    winner: int | None
    cheapest_in_time: int | None
    fastest_in_budget: int | None
    cheapest: int | None

    @property
    def feasible(self) -> Truths:
        """Allowed, and the goal is met."""
        return self.allowed & self.in_time & self.in_budget

    @property
    def impossible(self) -> Truths:
        """Not allowed, whatever the number of machines."""
        broken = np.zeros_like(self.allowed)
        for rule in self.rules:
            if not rule.of_size:
                broken |= rule.breaks
        return broken


def rank(candidates: Candidates, *, nothing_kept: bool = False) -> Ranking:
    """Sort them out; if nothing is kept, without the machines that are there already."""
    rules = tuple(_rules(candidates))
    if nothing_kept:
        rules += (Rule("is there already", candidates.acquired_by("keep")),)
    allowed = np.ones(len(candidates), dtype=bool)
    for rule in rules:
        allowed &= ~rule.breaks
    plan, costs = candidates.plan, candidates.costs
    seconds, usd = costs.run_seconds, costs.usd_per_run
    everyone = np.ones(len(candidates), dtype=bool)
    in_time = everyone if plan.time_per_run is None else seconds <= plan.time_per_run
    in_budget = everyone if plan.budget is None else costs.total_usd <= plan.budget
    return Ranking(
        rules=rules,
        allowed=allowed,
        in_time=in_time,
        in_budget=in_budget,
        front=pareto_front(seconds, usd, np.flatnonzero(allowed & in_budget)),
        winner=_best(usd, seconds, allowed & in_time & in_budget),
        cheapest_in_time=_best(usd, seconds, allowed & in_time),
        fastest_in_budget=_best(seconds, usd, allowed & in_budget),
        cheapest=_best(usd, seconds, allowed),
    )


def pareto_front(first: Floats, second: Floats, chosen: Integers) -> Integers:
    """Those that nobody beats in one measure without being worse in the other, by the first measure."""
    if not len(chosen):
        return chosen
    # one sort leaves out nearly all; only what is left is sorted by both
    rough = chosen[np.argsort(first[chosen])]
    near = rough[second[rough] <= np.minimum.accumulate(second[rough])]
    order = near[np.lexsort((second[near], first[near]))]
    best_before = np.concatenate([[np.inf], np.minimum.accumulate(second[order])[:-1]])
    return order[second[order] < best_before]


def plainest(
    candidates: Candidates, ranking: Ranking, chosen: int, at_most_usd: float = np.inf
) -> int:
    """The same machines with the plainest setting that is hardly worse: no remedy before one, the
    precision that was asked for first, then the batch that is nearest to the workload's own. Nobody should
    compress gradients for 1 % of a run. A run costs `at_most_usd` in it: what other machines would do it for."""
    costs = candidates.costs
    rows = same_machines(candidates, chosen)
    rows = rows[ranking.feasible[rows]]
    return plainest_of(
        candidates, rows, costs.usd_per_run[rows], costs.run_seconds[rows],
        int(np.searchsorted(rows, chosen)), at_most_usd=at_most_usd,
    )  # fmt: skip


def cheapest_other_usd(candidates: Candidates, ranking: Ranking, chosen: int | None) -> float:
    """What a run costs on the cheapest machines that meet the goal, but for these, in their plainest setting."""
    others = ranking.feasible.copy()
    if chosen is not None:
        others[same_machines(candidates, chosen)] = False
    costs = candidates.costs
    other = _best(costs.usd_per_run, costs.run_seconds, others)
    if other is None:
        return float("inf")
    return float(costs.usd_per_run[plainest(candidates, ranking, other)])


def same_machines(candidates: Candidates, chosen: int) -> Integers:
    """All settings of the same offer and number of nodes."""
    offer = candidates.offer[chosen]
    alike = np.arange(*np.searchsorted(candidates.offer, [offer, offer + 1]))
    nodes = candidates.throughputs.nodes[candidates.row]
    same: Integers = alike[nodes[alike] == nodes[chosen]]
    return same


def plainest_of(
    candidates: Candidates,
    rows: Integers,
    usd: Floats,
    seconds: Floats,
    best: int,
    *,
    at_most_usd: float = np.inf,
) -> int:
    """Of settings with these costs and times, the plainest that is hardly worse than the best."""
    near = (usd <= usd[best] * (1 + HARDLY_WORSE)) & (seconds <= seconds[best] * (1 + HARDLY_WORSE))
    near &= usd <= at_most_usd
    near[best] = True
    alike, usd = rows[near], usd[near]
    remedies = candidates.grid.remedies
    at = candidates.row[alike]
    treated = np.array([remedy != "none" for remedy in remedies])[candidates.throughputs.remedy[at]]
    batch = candidates.throughputs.batch_per_gpu[at]
    changed = np.abs(np.log(batch / candidates.trained.workload.batch_per_gpu))
    asked = candidates.throughputs.precision[at]
    return int(alike[np.lexsort((usd, changed, asked, treated))[0]])


def _best(first: Floats, second: Floats, among: Truths) -> int | None:
    """The lowest by the first measure; of equals the lowest by the second."""
    chosen = np.flatnonzero(among)
    if not len(chosen):
        return None
    level = chosen[first[chosen] == first[chosen].min()]
    return int(level[np.argmin(second[level])])


def _rules(candidates: Candidates) -> list[Rule]:
    plan, row = candidates.plan, candidates.row
    predicted, offers = candidates.throughputs, candidates.offers
    memory = candidates.columns.memory_bytes[candidates.offer]
    rules = [
        Rule("needs more memory than its GPU has", predicted.memory_bytes[row] > memory, True),
    ]
    if plan.search.largest_batch is not None:
        most = plan.search.largest_batch
        too_large = predicted.update_samples[row] > most
        rules.append(Rule(f"an update would see more than {most:,} samples", too_large, True))
    if plan.owned:
        needed = predicted.nodes[row] * candidates.costs.clusters
        rules.append(
            Rule(
                "needs more of them than you have", needed > candidates.kept_machines, of_size=True
            )
        )
    rules += _premises_rules(candidates)
    if plan.policy.data_stays:
        rules.append(Rule(DATA_STAYS, ~candidates.acquired_by("buy", "keep")))
    if plan.policy.clouds is not None:
        clouds = plan.policy.clouds
        foreign = np.array(
            [o.server.cloud is not None and o.server.cloud not in clouds for o in offers],
            dtype=bool,
        )[candidates.offer]
        rules.append(Rule(f"not rented from {', '.join(clouds)}", foreign))
    return rules


def _premises_rules(candidates: Candidates) -> list[Rule]:
    """What the place where bought machines would stand can't feed."""
    premises, asked = candidates.premises, candidates.plan.search.ways
    rules = []
    limit = premises.power
    if limit is not None and limit.acquisition in asked:
        broken = candidates.acquired_by(limit.acquisition) & (
            candidates.costs.machine_watts > limit.watts
        )
        rules.append(Rule(limit.reason, broken, of_size=True))
    limit = premises.rack
    if limit is not None and limit.acquisition in asked:
        each = candidates.columns.watts[candidates.offer]
        rules.append(
            Rule(limit.reason, candidates.acquired_by(limit.acquisition) & (each > limit.watts))
        )
    return rules + _site_rules(candidates)


def _site_rules(candidates: Candidates) -> list[Rule]:
    """What was designed as a room there, and does not work."""
    premises = candidates.premises
    if not premises.limits:
        return []
    most = candidates.housed_machines
    limits = [premises.limit(o.housed, o.acquisition) for o in candidates.offers]
    why = {number: limit.why for number, limit in enumerate(limits) if limit is not None}
    machines = candidates.throughputs.nodes[candidates.row] * candidates.costs.clusters
    return [
        Rule(f"{premises.name} can't house it", most < 1, details=why),
        Rule(
            f"{premises.name} can't house that many",
            (most >= 1) & (machines > most),
            of_size=True,
            details=why,
        ),
    ]
