"""The alternatives to the choice: the best variant of common answers and of mixes, and why each lost.

`compare_locations` compares the same bought machines on premises and in a colocation.
"""

import functools
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from gpuyard import units
from gpuyard.economics.billing import HOURS_PER_MONTH
from gpuyard.economics.ownership import monthly_parts_usd, owned_usd
from gpuyard.facilities.housing import BUILD_YEARS
from gpuyard.planner.candidates import Booleans, Candidates
from gpuyard.planner.choice import Choice, format_dollars
from gpuyard.planner.choices import create_choices, create_mixed_choices
from gpuyard.planner.costs import describe_owned_machines
from gpuyard.planner.mixes import (
    MIXING_SAVES_NOTHING,
    Mixes,
    explain_missing_mix,
    simplify_mix,
    solve_mixes,
)
from gpuyard.planner.offers import BOUGHT, Offer
from gpuyard.planner.ranking import DATA_STAYS, Ranking
from gpuyard.planner.result import Alternative, LocationCost
from gpuyard.predictor.table import Floats, Integers
from gpuyard.specs.plan_candidates import Acquisition

Strings = npt.NDArray[np.str_]
SAME_COST = 1.005  # costs within this ratio count as the same
HYBRID = "the best mix: own some, rent the rest"
KEPT_MIX = "keep what you have, rent the rest"
KEPT_AND_MORE = "keep what you have, and add to it"


class CommonAlternative(BaseModel):
    """A common answer, and the filters that select its candidates."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    offers: tuple[str, ...] | None = None
    ways: tuple[Acquisition, ...] | None = None
    gpus: tuple[str, ...] | None = None
    networks: tuple[str, ...] | None = None
    nodes: tuple[int, int] = Field(default=(1, 1_000_000))


@functools.cache
def load_common_alternatives() -> tuple[CommonAlternative, ...]:
    """Read the table of common alternatives."""
    text = (resources.files("gpuyard.planner") / "data" / "alternatives.toml").read_text(
        encoding="utf-8"
    )
    rows: dict[str, dict[str, Any]] = tomllib.loads(text)
    return tuple(CommonAlternative.model_validate(row) for row in rows.values())


def find_alternatives(
    candidates: Candidates, ranking: Ranking, winner: Choice | None
) -> tuple[Alternative, ...]:
    """Return the best variant of each common alternative that the search tried, in the order of the table."""
    traits = _OfferTraits.from_offers(candidates.offers)
    best_rows: list[tuple[CommonAlternative, int]] = []
    for alternative in load_common_alternatives():
        best = _find_best(candidates, ranking, _select_rows(candidates, traits, alternative))
        if best is not None:
            best_rows.append((alternative, best))
    choices = [
        winner if winner is not None and choice.has_same_machines(winner) else choice
        for choice in create_choices(candidates, ranking, [row for _, row in best_rows])
    ]
    return tuple(
        Alternative(
            alternative.name,
            choice,
            explain_loss(candidates, choice, winner, named=alternative.offers is None),
        )
        for (alternative, _), choice in zip(best_rows, choices, strict=True)
    )


def find_hybrid_alternative(
    candidates: Candidates, ranking: Ranking, mixes: Mixes, winner: Choice | None
) -> Alternative | None:
    """Return the best mix of owned and rented machines, or why there is none; None if the plan excludes mixes."""
    if "hybrid" not in candidates.plan.search.ways:
        return None
    if winner is not None and winner.rest is not None and not winner.kept:
        return Alternative(HYBRID, winner, explain_loss(candidates, winner, winner))
    best, pays = _find_nearest(mixes), True
    if best is None:
        mixes, pays = solve_mixes(candidates, mixes.base, mixes.rest, forced=True), False
        best = _find_nearest(mixes)
    if best is None:
        return Alternative(HYBRID, None, explain_missing_mix(candidates, mixes))
    simple = simplify_mix(candidates, ranking, mixes, best) if pays else mixes
    (choice,) = create_mixed_choices(candidates, ranking, simple, [0 if pays else best])
    why = f"{choice.summary}. {explain_loss(candidates, choice, winner)}"
    return Alternative(HYBRID, choice, why if pays else f"{why} {MIXING_SAVES_NOTHING}")


def find_kept_mix(
    candidates: Candidates, ranking: Ranking, mixes: Mixes, winner: Choice | None
) -> Alternative | None:
    """Return the best mix with machines you have; None if you have none, or they do all runs alone."""
    kept = candidates.acquired_by("keep")[mixes.base]
    if not kept.any():
        return None
    kept_mixes = solve_mixes(candidates, mixes.base[kept], mixes.rest[kept], forced=True)
    best = _find_nearest(kept_mixes)
    if best is None:
        return None
    (choice,) = create_mixed_choices(candidates, ranking, kept_mixes, [best])
    if winner is not None and choice.has_same_machines(winner) and winner.rest is not None:
        choice = winner  # in its simplest setting
    return Alternative(
        KEPT_MIX, choice, f"{choice.summary}. {explain_loss(candidates, choice, winner)}"
    )


def describe_expansion(
    candidates: Candidates, expanded: Choice | None, winner: Choice | None
) -> Alternative | None:
    """Describe the machines you have with additions to them, if that is possible."""
    if expanded is None:
        return None
    why = explain_loss(candidates, expanded, winner)
    return Alternative(KEPT_AND_MORE, expanded, f"{expanded.summary}. {why}")


def _find_nearest(mixes: Mixes) -> int | None:
    """Return the cheapest mix that meets the goal, otherwise the cheapest in time, otherwise the cheapest."""
    tiers = (mixes.in_time & mixes.in_budget, mixes.in_time, np.ones(len(mixes), dtype=bool))
    cheapest = (mixes.cheapest(mixes.mixed & tier) for tier in tiers)
    return next((best for best in cheapest if best is not None), None)


@dataclass(frozen=True)
class _OfferTraits:
    """The properties of each offer that common alternatives filter by."""

    server: Strings
    acquisition: Strings
    gpu: Strings
    link: Strings  # empty without a network

    @staticmethod
    def from_offers(offers: Sequence[Offer]) -> "_OfferTraits":
        return _OfferTraits(
            np.array([offer.server.id for offer in offers]),
            np.array([offer.acquisition for offer in offers]),
            np.array([offer.server.gpu.id for offer in offers]),
            np.array([(offer.network.link or "") if offer.network else "" for offer in offers]),
        )

    def matches(self, alternative: CommonAlternative) -> Booleans:
        """Return which offers belong to a common alternative."""
        matches: Booleans = np.ones(len(self.server), dtype=bool)
        for column, allowed in (
            (self.server, alternative.offers),
            (self.acquisition, alternative.ways),
            (self.gpu, alternative.gpus),
            (self.link, alternative.networks),
        ):
            if allowed is not None:
                matches &= np.isin(column, allowed)
        return matches


def _select_rows(
    candidates: Candidates, traits: _OfferTraits, alternative: CommonAlternative
) -> Integers:
    """Return the candidates that belong to a common alternative."""
    rows = np.flatnonzero(traits.matches(alternative)[candidates.offer])
    nodes = candidates.throughputs.nodes[candidates.row[rows]]
    minimum, maximum = alternative.nodes
    selected: Integers = rows[(nodes >= minimum) & (nodes <= maximum)]
    return selected


def _find_best(candidates: Candidates, ranking: Ranking, among: Integers) -> int | None:
    """Return the cheapest candidate that meets the goal, otherwise the one that misses it least."""
    if not len(among):
        return None
    usd, seconds = candidates.costs.usd_per_run[among], candidates.costs.run_seconds[among]
    allowed, in_time = ranking.allowed[among], ranking.in_time[among]
    possible = np.ones_like(allowed)  # regardless of policy and site
    for rule in ranking.rules:
        if rule.depends_on_setting:
            possible &= ~rule.breaks[among]
    tiers: tuple[tuple[Booleans, Floats], ...] = (
        (allowed & in_time & ranking.in_budget[among], usd),
        (allowed & in_time, usd),
        (allowed, seconds),
        (possible & in_time, usd),
        (possible, seconds),
        (np.ones_like(allowed), seconds),
    )
    tier, measure = next((tier, measure) for tier, measure in tiers if tier.any())
    return int(among[np.argmin(np.where(tier, measure, np.inf))])


def explain_loss(
    candidates: Candidates, choice: Choice, winner: Choice | None, *, named: bool = False
) -> str:
    """Explain why a choice lost; `named` adds its machines if nothing else names them."""
    name = choice.machines if named else "It"
    figures = f"{choice.price}, {units.format_seconds(choice.run_seconds)}"
    if not choice.allowed:
        return f"Ruled out: {'; '.join(choice.broken_rules)}. {name} would cost {figures}."
    if named:
        figures = f"{name}: {figures}"
    if misses := describe_misses(candidates, choice):
        if not choice.in_time:
            subject = "it" if choice.rest or choice.kept else "even its fastest variant"
            misses[0] = f"{subject} is {misses[0]}"
        return f"Lost: {' and '.join(misses)} ({figures})."
    if winner is None:
        return f"Meets the goal: {figures}."
    if choice.has_same_machines(winner):
        return f"This is the plan's choice: {figures}."
    ratio = choice.usd_per_run / winner.usd_per_run if winner.usd_per_run else np.inf
    if ratio < SAME_COST:
        faster = choice.run_seconds < winner.run_seconds
        verdict = "Faster for nearly the same cost" if faster else "As cheap, but no faster"
        return f"{verdict}: {figures}."
    times = (
        f"{units.format_number(ratio)} × as much"
        if np.isfinite(ratio)
        else "money, and the choice is free"
    )
    return f"Meets the goal, but a finished run costs {times} ({figures})."


def describe_misses(candidates: Candidates, choice: Choice) -> list[str]:
    """Describe by how much a choice misses the goal, time first."""
    plan = candidates.plan
    misses = []
    if not choice.in_time and plan.time_per_run is not None:
        misses.append(f"{units.format_seconds(choice.run_seconds - plan.time_per_run)} too slow")
    if not choice.in_budget and plan.budget is not None:
        misses.append(f"{format_dollars(choice.total_usd - plan.budget)} over the budget")
    return misses


def compare_locations(
    candidates: Candidates, ranking: Ranking, winner: Choice | None, row: int | None
) -> tuple[LocationCost, ...]:
    """Compare on premises with colocation for the machines in `row` that the winner buys.

    If the winner buys none, compare them for the cheapest machines that could be bought.
    """
    clusters, busy = None, None
    if winner is not None and winner.owned_way in BOUGHT:
        clusters, busy = float(winner.clusters), winner.utilization
    if row is None or not candidates.acquired_by(*BOUGHT)[row]:
        row = _find_cheapest_bought(candidates, ranking)
    if row is None:
        return ()
    if clusters is None or busy is None:
        costs = candidates.costs
        clusters, busy = float(costs.clusters[row]), float(costs.utilization[row])
    return tuple(
        _price_location(candidates, row, acquisition, clusters, busy) for acquisition in BOUGHT
    )


def _find_cheapest_bought(candidates: Candidates, ranking: Ranking) -> int | None:
    rows = np.flatnonzero(candidates.acquired_by(*BOUGHT) & ranking.allowed & ranking.in_time)
    return int(rows[np.argmin(candidates.costs.usd_per_run[rows])]) if len(rows) else None


def _price_location(
    candidates: Candidates, row: int, acquisition: Acquisition, clusters: float, busy: float
) -> LocationCost:
    plan, runs, premises = candidates.plan, candidates.runs, candidates.premises
    rows = np.array([row])
    hours = candidates.costs.run_seconds[rows] / 3600
    owned = describe_owned_machines(
        plan, premises, candidates.price_rows(rows, hours), acquisition,
        clusters=clusters, utilization=busy, years=runs.years,
    )  # fmt: skip
    parts, total = monthly_parts_usd(owned), float(owned_usd(owned, runs.years)[0])
    terms = premises.select_terms(acquisition)
    watts = float(np.asarray(owned.watts)[0])
    machine_watts = float(candidates.columns.watts[candidates.offer[row]])
    build_usd_per_kw = terms.build_usd_per_kw
    offer = candidates.offers[candidates.offer[row]]
    machines = int(clusters * candidates.throughputs.nodes[candidates.row[row]])
    refusal = premises.find_refusal(offer.housing_key, acquisition, machines, machine_watts)
    broken_rules = [refusal] if refusal else []
    if acquisition == "colocate" and plan.policy.data_stays:
        broken_rules.append(DATA_STAYS)
    runs_done = busy * clusters * runs.months * HOURS_PER_MONTH / float(hours[0])
    return LocationCost(
        way=acquisition,
        where=terms.where,
        pue=terms.pue,
        usd_per_kwh=terms.usd_per_kwh,
        energy_usd_per_month=float(parts["power"][0]),
        rent_usd_per_month=float(np.broadcast_to(parts["colocation"], 1)[0]),
        build_usd_per_month=None
        if build_usd_per_kw is None
        else build_usd_per_kw * watts / 1000 / (BUILD_YEARS * 12),
        total_usd=total,
        usd_per_run=total / runs_done,
        broken_rules=tuple(broken_rules),
    )
