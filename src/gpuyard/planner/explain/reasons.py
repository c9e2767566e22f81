"""Why the choice is the choice; where nothing meets the goal, what is short by how much; and what all of it
stands on that nobody measured, quoted or looked up."""

import numpy as np

from gpuyard import units
from gpuyard.catalog import gpus
from gpuyard.catalog.prices import ASSUMED_CLOUD, cloud_data
from gpuyard.facility.housing import BUILD_YEARS
from gpuyard.planner.candidates import Candidates
from gpuyard.planner.explain.choices import choices, mixed_choices
from gpuyard.planner.mixes import Mixes
from gpuyard.planner.offers import OWNED, RESERVING_CLOUDS, discount, given_discount, years_of
from gpuyard.planner.ranking import HARDLY_WORSE, Ranking
from gpuyard.planner.result import (
    ACQUIRED,
    Alternative,
    Binding,
    Choice,
    RentedRest,
    dollars,
    precisions_words,
    share_of_runs,
)
from gpuyard.planner.servers import UNKNOWN_NETWORK, unusable_prices
from gpuyard.predict.compute import HALVES, ComputeBasis, computed_in
from gpuyard.specs.plan import RESERVED_YEARS, Acquisition, Plan

_BASES: dict[ComputeBasis, str] = {
    "measured here": "measured here",
    "measured": "measured",
    "scaled": "scaled from a measurement",
    "roofline": "roofline estimate",
}


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
    if winner.rest is not None:
        found.append(_mixed(candidates, winner, winner.rest))
    elif winner.way == "keep":
        found.append(_kept(candidates, winner))
    elif winner.way in OWNED or winner.way.startswith("reserved"):
        found.append(_filled(candidates, winner))
    found += _other_acquisitions(candidates, ranking, winner)
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


def assumptions(candidates: Candidates) -> tuple[str, ...]:
    """What the answer stands on that nobody measured, quoted or looked up."""
    plan = candidates.plan
    found = []
    lines = candidates.lines.values()
    bases = sorted({_BASES[line.basis] for there in lines for line in there.values()})
    found.append(f"Single-GPU speed: {' or '.join(bases)}; the speed of several is predicted.")
    found += _precision(candidates)
    found += [
        reserved_words(plan, acquisition)
        for acquisition in plan.search.ways
        if acquisition in RESERVED_YEARS
    ]
    if set(OWNED) & set(plan.search.ways):
        found += _owning(candidates)
    if not plan.policy.data_stays and set(plan.search.ways) - {*OWNED, "hybrid"}:
        start = plan.renting.start / 60
        found.append(f"A rented run is billed from {start:g} minutes before its first step.")
        found.append(_data_words(candidates))
    if "spot" in plan.search.ways and not plan.policy.data_stays:
        found.append(
            f"Each spot instance is interrupted {plan.spot.interruptions_per_hour:g} times per hour."
        )
    unknown = {o.server.cloud for o in candidates.offers if o.network_assumed}
    if unknown:
        clouds = ", ".join(sorted(cloud for cloud in unknown if cloud))
        found.append(
            f"Network between several machines of {clouds}: where nobody says it, {UNKNOWN_NETWORK}."
        )
    for missing in candidates.no_rate:
        offers = ", ".join(missing.offers)
        found.append(f"Left out, as no rate is known {missing.words}: {offers}.")
    unusable = ", ".join(f"{count} ({why})" for why, count in unusable_prices().items() if count)
    if unusable:
        found.append(f"Unusable rows of the price list: {unusable}.")
    if plan.search.largest_batch is None:
        found.append(
            "Caveat: samples per update are not limited, so accuracy may suffer (search.largest_batch)."
        )
    return tuple(found)


def _precision(candidates: Candidates) -> list[str]:
    """What is trained in, who gains nothing from it but memory, and what was not tried."""
    tried = candidates.precisions
    default = (
        ", PyTorch's default: tf32 for convolutions and RNNs on NVIDIA GPUs that have it, else fp32"
    )
    why = "" if candidates.precision_given else default
    found = [f"Precision: {precisions_words(tried)}{why}."]
    if not set(tried) & set(HALVES):
        found.append(
            "Mixed precision was not tried: 'search.precision: [tf32, bf16]' or '--precision tf32,bf16' does."
        )
    for precision in HALVES:
        slow = sorted(
            name
            for name, there in candidates.lines.items()
            if precision in there and computed_in(precision, gpus().get(name)) != precision
        )
        if slow:
            found.append(
                f"Computed in {precision} at the speed of fp32 or slower, so that it saves memory and no time: {', '.join(slow)}."
            )
    return found


def _owning(candidates: Candidates) -> list[str]:
    """Where bought machines stand and what they need."""
    premises, owning = candidates.premises, candidates.plan.owning
    own, shared = premises.own, premises.shared
    at = f" at {premises.name}" if premises.name else ""
    found = [
        f"Bought machines{at}: ${own.usd_per_kwh:g}/kWh at a PUE of {own.pue:g}, colocation at "
        f"${shared.rent_usd_per_kw_month or 0:g}/kW/month and ${shared.usd_per_kwh:g}/kWh at a PUE of "
        f"{shared.pue:g}, {owning.staff_hours_per_month:g} staff hours per machine and month at "
        f"${owning.staff:g}/h, {100 * owning.value_kept_per_year:.0f} % of resale value kept per year; "
        "servers without a list price are estimated from parts."
    ]
    kept = {o.server.id: o.server for o in candidates.offers if o.acquisition == "keep"}
    found += [
        f"You have {s.owned} × {s.name}, worth {dollars(s.value_usd)} each ({s.price_source}); "
        f"under load one draws {units.format_watts(s.watts)}."
        for s in kept.values()
    ]
    found.append(premises.tariff.sentence)
    if own.build_usd_per_kw is not None:
        found.append(
            f"The room itself: ${own.build_usd_per_kw:,.0f} per kW of machines, written off over "
            f"{BUILD_YEARS} years."
        )
    found += [f"Assumed for {premises.name}: {words}." for words in premises.assumed]
    if premises.name:
        found.append(
            f"The choice, the alternatives and the best options were designed as rooms of {premises.name}, as "
            "`gpuyard facility` does, with racks, cords and phases."
        )
    return found


def _data_words(candidates: Candidates) -> str:
    data = candidates.data
    stored, out = (units.format_bytes(gb * 1e9) for gb in (data.stored_gb, data.out_gb_per_run))
    row = cloud_data().get(ASSUMED_CLOUD)
    known = ", ".join(cloud_data().ids())
    given = [key for key in ("storage", "egress") if getattr(data.renting, key) is not None]
    prices = (
        "at the plan's prices"
        if len(given) == 2
        else f"at list prices of {known} ({row.date}), other clouds assumed to charge as {ASSUMED_CLOUD}"
    )
    return f"Rented runs store {stored} in the cloud and download {out} each, {prices}."


def reserved_words(plan: Plan, acquisition: Acquisition) -> str:
    term, years = RESERVED_YEARS[acquisition], years_of(plan)
    if term > years:
        return f"{acquisition} is left out: its term is longer than the horizon."
    priced = _reserved_price(plan, acquisition)
    if years % term > 1e-6:
        priced += " Its last term runs past the horizon and is paid to its end."
    return priced


def _reserved_price(plan: Plan, acquisition: Acquisition) -> str:
    off = f"{100 * discount(plan, acquisition):.0f} % off the on-demand price"
    if given_discount(plan, acquisition) is not None:
        return f"{acquisition} is {off}, as the plan says."
    clouds = ", ".join(sorted(RESERVING_CLOUDS))
    key = acquisition.replace("-", "_")
    return f"{acquisition} is assumed to be {off}, at {clouds} only; no price list has it (prices.{key})."
