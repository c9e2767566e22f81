"""Decide which candidates are allowed, which are Pareto-optimal, and which one meets the goal best."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from gpuyard.planner.candidates import Booleans, Candidates
from gpuyard.planner.training import DataParallel
from gpuyard.predictor.table import Floats, Integers
from gpuyard.workloads.profiles import advise_sharding

SIMPLICITY_TOLERANCE = 0.03  # a simpler setting may be this much slower or more expensive
DATA_STAYS = "data may not leave the building"


@dataclass(frozen=True)
class Rule:
    """A rule that excludes candidates, whatever they cost."""

    reason: str
    breaks: Booleans
    depends_on_setting: bool = False  # the same offer with another batch or remedy may comply
    depends_on_size: bool = False  # fewer of the same machines may comply
    details: Mapping[int, str] = field(default_factory=dict)  # by offer index

    def describe(self, offer: int) -> str:
        """Describe why the rule excludes this offer."""
        return f"{self.reason}: {self.details[offer]}" if offer in self.details else self.reason


@dataclass(frozen=True)
class Ranking:
    """The ranked candidates. All indices refer to `Candidates`."""

    rules: tuple[Rule, ...]
    allowed: Booleans
    in_time: Booleans
    in_budget: Booleans
    front: Integers  # within the budget, fastest first
    winner: int | None
    cheapest_in_time: int | None
    fastest_in_budget: int | None
    cheapest: int | None

    @property
    def feasible(self) -> Booleans:
        """Which candidates are allowed and meet the goal."""
        return self.allowed & self.in_time & self.in_budget

    @property
    def impossible(self) -> Booleans:
        """Which candidates are not allowed with any number of machines."""
        broken = np.zeros_like(self.allowed)
        for rule in self.rules:
            if not rule.depends_on_size:
                broken |= rule.breaks
        return broken


def rank(candidates: Candidates, *, exclude_kept: bool = False) -> Ranking:
    """Rank the candidates, optionally without machines that you already have."""
    rules = tuple(_create_rules(candidates))
    if exclude_kept:
        rules += (Rule("you already have it", candidates.acquired_by("keep")),)
    allowed = np.ones(len(candidates), dtype=bool)
    for rule in rules:
        allowed &= ~rule.breaks
    plan, costs = candidates.plan, candidates.costs
    seconds, usd = costs.run_seconds, costs.usd_per_run
    all_true = np.ones(len(candidates), dtype=bool)
    in_time = all_true if plan.time_per_run is None else seconds <= plan.time_per_run
    in_budget = all_true if plan.budget is None else costs.total_usd <= plan.budget
    return Ranking(
        rules=rules,
        allowed=allowed,
        in_time=in_time,
        in_budget=in_budget,
        front=pareto_front(seconds, usd, np.flatnonzero(allowed & in_budget)),
        winner=_find_best(usd, seconds, allowed & in_time & in_budget),
        cheapest_in_time=_find_best(usd, seconds, allowed & in_time),
        fastest_in_budget=_find_best(seconds, usd, allowed & in_budget),
        cheapest=_find_best(usd, seconds, allowed),
    )


def pareto_front(first: Floats, second: Floats, chosen: Integers) -> Integers:
    """Return the rows that no other row beats in one measure without being worse in the other."""
    if not len(chosen):
        return chosen
    # one sort removes nearly all rows; only the rest is sorted by both measures
    rough = chosen[np.argsort(first[chosen])]
    near = rough[second[rough] <= np.minimum.accumulate(second[rough])]
    order = near[np.lexsort((second[near], first[near]))]
    best_before = np.concatenate([[np.inf], np.minimum.accumulate(second[order])[:-1]])
    return order[second[order] < best_before]


def find_simplest_setting(
    candidates: Candidates, ranking: Ranking, chosen: int, at_most_usd: float = np.inf
) -> int:
    """Return the simplest setting of the same machines that is within the tolerance.

    Simpler is no remedy, then the precision that the plan lists first, then the batch nearest to the workload's own:
    compressing gradients is not worth 1% of a run. A run must cost no more than `at_most_usd`.
    """
    costs = candidates.costs
    rows = find_same_machines(candidates, chosen)
    rows = rows[ranking.feasible[rows]]
    return find_simplest(
        candidates, rows, costs.usd_per_run[rows], costs.run_seconds[rows],
        int(np.searchsorted(rows, chosen)), at_most_usd=at_most_usd,
    )  # fmt: skip


def price_cheapest_other(candidates: Candidates, ranking: Ranking, chosen: int | None) -> float:
    """Return the cost of a run on the cheapest other machines that meet the goal, in their simplest setting."""
    others = ranking.feasible.copy()
    if chosen is not None:
        others[find_same_machines(candidates, chosen)] = False
    costs = candidates.costs
    other = _find_best(costs.usd_per_run, costs.run_seconds, others)
    if other is None:
        return float("inf")
    return float(costs.usd_per_run[find_simplest_setting(candidates, ranking, other)])


def find_same_machines(candidates: Candidates, chosen: int) -> Integers:
    """Return all settings of the same offer and number of nodes."""
    offer = candidates.offer[chosen]
    rows = np.arange(*np.searchsorted(candidates.offer, [offer, offer + 1]))
    nodes = candidates.throughputs.nodes
    same: Integers = rows[nodes[candidates.row[rows]] == nodes[candidates.row[chosen]]]
    return same


def find_simplest(
    candidates: Candidates,
    rows: Integers,
    usd: Floats,
    seconds: Floats,
    best: int,
    *,
    at_most_usd: float = np.inf,
) -> int:
    """Return the simplest of several settings whose cost and time are within the tolerance of the best."""
    near = (usd <= usd[best] * (1 + SIMPLICITY_TOLERANCE)) & (
        seconds <= seconds[best] * (1 + SIMPLICITY_TOLERANCE)
    )
    near &= usd <= at_most_usd
    near[best] = True
    rows, usd = rows[near], usd[near]
    at = candidates.row[rows]
    is_remedy = np.array([remedy != "none" for remedy in candidates.grid.remedies])
    uses_remedy = is_remedy[candidates.throughputs.remedy[at]]
    batch = candidates.throughputs.batch_per_gpu[at]
    batch_change = np.abs(np.log(batch / candidates.training.workload.batch_per_gpu))
    precision = candidates.throughputs.precision[at]
    return int(rows[np.lexsort((usd, batch_change, precision, uses_remedy))[0]])


def _find_best(first: Floats, second: Floats, among: Booleans) -> int | None:
    """Return the row with the lowest first measure; among equals, the one with the lowest second measure."""
    chosen = np.flatnonzero(among)
    if not len(chosen):
        return None
    equals = chosen[first[chosen] == first[chosen].min()]
    return int(equals[np.argmin(second[equals])])


def _create_rules(candidates: Candidates) -> list[Rule]:
    plan, row = candidates.plan, candidates.row
    predicted, offers = candidates.throughputs, candidates.offers
    memory = candidates.columns.memory_bytes[candidates.offer]
    lacking = predicted.memory_bytes[row] > memory
    advice = _advise(candidates) if lacking.any() else ""
    rules = [Rule(f"needs more memory than its GPU has{advice}", lacking, True)]
    if plan.search.largest_batch is not None:
        maximum = plan.search.largest_batch
        too_large = predicted.update_samples[row] > maximum
        rules.append(Rule(f"an update would use more than {maximum:,} samples", too_large, True))
    if plan.owned:
        needed = predicted.nodes[row] * candidates.costs.clusters
        rules.append(
            Rule(
                "needs more of them than you have",
                needed > candidates.kept_machines,
                depends_on_size=True,
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


def _advise(candidates: Candidates) -> str:
    """Say whether the model was divided among the GPUs, and if not, how to let gpuyard try that."""
    training = candidates.training
    if not isinstance(training, DataParallel):
        return ", even divided among all of them"
    if training.sharded is not None:
        return " (if whole copies don't fit, dividing the model was tried)"
    advice = advise_sharding(training.workload)
    return f"; {advice}" if advice else ""


def _premises_rules(candidates: Candidates) -> list[Rule]:
    """Exclude machines that draw more power than their premises supply."""
    premises, ways = candidates.premises, candidates.plan.search.ways
    rules = []
    limit = premises.power
    if limit is not None and limit.acquisition in ways:
        too_much = candidates.acquired_by(limit.acquisition) & (
            candidates.costs.machine_watts > limit.watts
        )
        rules.append(Rule(limit.reason, too_much, depends_on_size=True))
    limit = premises.rack
    if limit is not None and limit.acquisition in ways:
        watts = candidates.columns.watts[candidates.offer]
        rules.append(
            Rule(limit.reason, candidates.acquired_by(limit.acquisition) & (watts > limit.watts))
        )
    return rules + _site_rules(candidates)


def _site_rules(candidates: Candidates) -> list[Rule]:
    """Exclude machines for which the room at the site cannot be designed."""
    premises = candidates.premises
    if not premises.limits:
        return []
    maximum = candidates.housed_machines
    why = {i: limit.why for i, limit in enumerate(candidates.site_limits) if limit is not None}
    machines = candidates.throughputs.nodes[candidates.row] * candidates.costs.clusters
    return [
        Rule(f"{premises.name} cannot house it", maximum < 1, details=why),
        Rule(
            f"{premises.name} cannot house that many",
            (maximum >= 1) & (machines > maximum),
            depends_on_size=True,
            details=why,
        ),
    ]
