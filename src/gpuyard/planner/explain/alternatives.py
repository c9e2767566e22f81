"""What else could be done: the best variant of well-known answers and of a mix, and what each lost by; and the
same bought machines on premises and in a colocation."""

import functools
import tomllib
from importlib import resources
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from gpuyard import units
from gpuyard.economics.billing import HOURS_PER_MONTH
from gpuyard.economics.ownership import monthly_parts_usd, owned_usd
from gpuyard.facility.housing import BUILD_YEARS
from gpuyard.planner.candidates import Candidates, Truths
from gpuyard.planner.costs import owned_machines
from gpuyard.planner.explain.choices import choices, mixed_choices
from gpuyard.planner.mixes import MIXING_SAVES_NOTHING, Mixes, no_mix, plainest_mix, solve
from gpuyard.planner.offers import BOUGHT, Offer
from gpuyard.planner.ranking import DATA_STAYS, Ranking
from gpuyard.planner.result import Alternative, Choice, Siting, dollars
from gpuyard.predict.table import Floats, Integers
from gpuyard.specs.plan import Acquisition

SAME_COST = 1.005  # costs that close are called the same
HYBRID = "the best mix: own some, rent the rest"
KEPT_MIX = "keep what you have, rent the rest"
KEPT_AND_MORE = "keep what you have, and add to it"


class WellKnown(BaseModel):
    """What narrows the candidates down to one well-known answer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    offers: tuple[str, ...] | None = None
    ways: tuple[Acquisition, ...] | None = None
    gpus: tuple[str, ...] | None = None
    networks: tuple[str, ...] | None = None
    nodes: tuple[int, int] = Field(default=(1, 1_000_000))


@functools.cache
def well_known() -> tuple[WellKnown, ...]:
    text = (resources.files("gpuyard.planner") / "data" / "alternatives.toml").read_text(
        encoding="utf-8"
    )
    rows: dict[str, dict[str, Any]] = tomllib.loads(text)
    return tuple(WellKnown.model_validate(row) for row in rows.values())


def alternatives(
    candidates: Candidates, ranking: Ranking, winner: Choice | None
) -> tuple[Alternative, ...]:
    """All of them, in the order of the table; those that the search did not try are left out."""
    found: list[tuple[WellKnown, int]] = []
    for asked in well_known():
        best = _best(candidates, ranking, _matches(candidates, asked))
        if best is not None:
            found.append((asked, best))
    made = [
        winner if winner is not None and choice.same_machines(winner) else choice  # in its setting
        for choice in choices(candidates, ranking, [row for _, row in found])
    ]
    return tuple(
        Alternative(
            asked.name, choice, why_not(candidates, choice, winner, named=asked.offers is None)
        )
        for (asked, _), choice in zip(found, made, strict=True)
    )


def hybrid_alternative(
    candidates: Candidates, ranking: Ranking, mixes: Mixes, winner: Choice | None
) -> Alternative | None:
    """The best mix of own and rented machines, or why there is none; None where it was not asked for."""
    if "hybrid" not in candidates.plan.search.ways:
        return None
    if winner is not None and winner.rest is not None and not winner.kept:
        return Alternative(HYBRID, winner, why_not(candidates, winner, winner))
    best, pays = _nearest(mixes), True
    if best is None:
        mixes, pays = solve(candidates, mixes.base, mixes.rest, forced=True), False
        best = _nearest(mixes)
    if best is None:
        return Alternative(HYBRID, None, no_mix(candidates, mixes))
    plain = plainest_mix(candidates, ranking, mixes, best) if pays else mixes
    (choice,) = mixed_choices(candidates, ranking, plain, [0 if pays else best])
    why = f"{choice.what}. {why_not(candidates, choice, winner)}"
    return Alternative(HYBRID, choice, why if pays else f"{why} {MIXING_SAVES_NOTHING}")


def kept_mix(
    candidates: Candidates, ranking: Ranking, mixes: Mixes, winner: Choice | None
) -> Alternative | None:
    """The best mix with what is there already; None where there is nothing, or it needs no help."""
    kept = candidates.acquired_by("keep")[mixes.base]
    if not kept.any():
        return None
    some = solve(candidates, mixes.base[kept], mixes.rest[kept], forced=True)
    best = _nearest(some)
    if best is None:
        return None
    (choice,) = mixed_choices(candidates, ranking, some, [best])
    if winner is not None and choice.same_machines(winner) and winner.rest is not None:
        choice = winner  # in the plainest setting
    return Alternative(KEPT_MIX, choice, f"{choice.what}. {why_not(candidates, choice, winner)}")


def kept_extended(
    candidates: Candidates, extended: Choice | None, winner: Choice | None
) -> Alternative | None:
    """What is there already with more beside it; None where nothing is there, or nothing is gained."""
    if extended is None:
        return None
    why = why_not(candidates, extended, winner)
    return Alternative(KEPT_AND_MORE, extended, f"{extended.what}. {why}")


def _nearest(mixes: Mixes) -> int | None:
    """The cheapest of those that meet the goal, else of those in time, else of all."""
    tiers = (mixes.in_time & mixes.in_budget, mixes.in_time, np.ones(len(mixes), dtype=bool))
    found = (mixes.cheapest(mixes.mixed & tier) for tier in tiers)
    return next((best for best in found if best is not None), None)


def _matches(candidates: Candidates, asked: WellKnown) -> Integers:
    """Rows of the candidates; those of one offer stand together."""
    found = [
        np.arange(*np.searchsorted(candidates.offer, [number, number + 1]))
        for number, offer in enumerate(candidates.offers)
        if _fits(offer, asked)
    ]
    rows: Integers = np.concatenate([np.zeros(0, dtype=np.int64), *found])
    nodes = candidates.throughputs.nodes[candidates.row[rows]]
    within: Integers = rows[(nodes >= asked.nodes[0]) & (nodes <= asked.nodes[1])]
    return within


def _fits(offer: Offer, asked: WellKnown) -> bool:
    link = offer.network.link if offer.network else None
    return (
        (asked.offers is None or offer.server.id in asked.offers)
        and (asked.ways is None or offer.acquisition in asked.ways)
        and (asked.gpus is None or offer.server.gpu.id in asked.gpus)
        and (asked.networks is None or link in asked.networks)
    )


def _best(candidates: Candidates, ranking: Ranking, among: Integers) -> int | None:
    """The one that comes nearest to the goal: cheapest of those that meet it, else what misses least."""
    if not len(among):
        return None
    usd, seconds = candidates.costs.usd_per_run[among], candidates.costs.run_seconds[among]
    allowed, in_time = ranking.allowed[among], ranking.in_time[among]
    possible = np.ones_like(allowed)  # whatever policy and site say
    for rule in ranking.rules:
        if rule.of_setting:
            possible &= ~rule.breaks[among]
    tiers: tuple[tuple[Truths, Floats], ...] = (
        (allowed & in_time & ranking.in_budget[among], usd),
        (allowed & in_time, usd),
        (allowed, seconds),
        (possible & in_time, usd),
        (possible, seconds),
        (np.ones_like(allowed), seconds),
    )
    tier, measure = next((tier, measure) for tier, measure in tiers if tier.any())
    return int(among[np.argmin(np.where(tier, measure, np.inf))])


def why_not(
    candidates: Candidates, choice: Choice, winner: Choice | None, *, named: bool = False
) -> str:
    """What it lost by; `named` says which machines they are, where nothing else does."""
    name = choice.machines if named else "It"
    at = f"{choice.price}, {units.format_seconds(choice.run_seconds)}"
    if not choice.allowed:
        return f"Ruled out: {'; '.join(choice.broken_rules)}. {name} would cost {at}."
    if named:
        at = f"{name}: {at}"
    if missed := misses(candidates, choice):
        if not choice.in_time:
            missed[0] = (
                f"{'it' if choice.rest or choice.kept else 'even its fastest variant'} is {missed[0]}"
            )
        return f"Lost: {' and '.join(missed)} ({at})."
    if winner is None:
        return f"Meets the goal: {at}."
    if choice.same_machines(winner):
        return f"This is the plan's choice: {at}."
    ratio = choice.usd_per_run / winner.usd_per_run if winner.usd_per_run else np.inf
    if ratio < SAME_COST:
        faster = choice.run_seconds < winner.run_seconds
        return f"{'Faster, and hardly costs more' if faster else 'As cheap, but no faster'}: {at}."
    times = f"{ratio:.3g} × as much" if np.isfinite(ratio) else "money, and the choice is free"
    return f"Meets the goal, but a finished run costs {times} ({at})."


def misses(candidates: Candidates, choice: Choice) -> list[str]:
    """What it misses of the goal, and by how much: time first."""
    plan = candidates.plan
    found = []
    if not choice.in_time and plan.time_per_run is not None:
        found.append(f"{units.format_seconds(choice.run_seconds - plan.time_per_run)} too slow")
    if not choice.in_budget and plan.budget is not None:
        found.append(f"{dollars(choice.total_usd - plan.budget)} over the budget")
    return found


def sitings(
    candidates: Candidates, ranking: Ranking, winner: Choice | None, row: int | None
) -> tuple[Siting, ...]:
    """Of the machines that the choice buys, which stand in `row`; where it buys none, of the cheapest
    that could be bought."""
    clusters, busy = None, None
    if winner is not None and winner.owned_way in BOUGHT:
        clusters, busy = float(winner.clusters), winner.utilisation
    if row is None or not candidates.acquired_by(*BOUGHT)[row]:
        row = _cheapest(candidates, ranking)
    if row is None:
        return ()
    if clusters is None or busy is None:
        costs = candidates.costs
        clusters, busy = float(costs.clusters[row]), float(costs.utilisation[row])
    return tuple(_siting(candidates, row, acquisition, clusters, busy) for acquisition in BOUGHT)


def _cheapest(candidates: Candidates, ranking: Ranking) -> int | None:
    rows = np.flatnonzero(candidates.acquired_by(*BOUGHT) & ranking.allowed & ranking.in_time)
    return int(rows[np.argmin(candidates.costs.usd_per_run[rows])]) if len(rows) else None


def _siting(
    candidates: Candidates, row: int, acquisition: Acquisition, clusters: float, busy: float
) -> Siting:
    plan, runs, premises = candidates.plan, candidates.runs, candidates.premises
    at = np.array([row])
    hours = candidates.costs.run_seconds[at] / 3600
    owned = owned_machines(
        plan, premises, candidates.rows(at, hours), acquisition,
        clusters=clusters, utilisation=busy, years=runs.years,
    )  # fmt: skip
    parts, total = monthly_parts_usd(owned), float(owned_usd(owned, runs.years)[0])
    terms = premises.terms(acquisition)
    watts = float(np.asarray(owned.watts)[0])
    one_machine = float(candidates.columns.watts[candidates.offer[row]])
    build = terms.build_usd_per_kw
    offer = candidates.offers[candidates.offer[row]]
    machines = int(clusters * candidates.throughputs.nodes[candidates.row[row]])
    broken = (
        [why] if (why := premises.refusal(offer.housed, acquisition, machines, one_machine)) else []
    )
    if acquisition == "colocate" and plan.policy.data_stays:
        broken.append(DATA_STAYS)
    runs_done = busy * clusters * runs.months * HOURS_PER_MONTH / float(hours[0])
    return Siting(
        way=acquisition,
        where=terms.where,
        pue=terms.pue,
        usd_per_kwh=terms.usd_per_kwh,
        energy_usd_per_month=float(parts["power"][0]),
        rent_usd_per_month=float(np.broadcast_to(parts["colocation"], 1)[0]),
        build_usd_per_month=None if build is None else build * watts / 1000 / (BUILD_YEARS * 12),
        total_usd=total,
        usd_per_run=total / runs_done,
        broken_rules=tuple(broken),
    )
