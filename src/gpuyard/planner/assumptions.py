"""What a plan's answer stands on that nobody measured, quoted or looked up, in words."""

from gpuyard import units
from gpuyard.catalog.prices import ASSUMED_CLOUD, cloud_data
from gpuyard.facility.housing import BUILD_YEARS
from gpuyard.planner.candidates import Candidates
from gpuyard.planner.offers import (
    OWNED,
    RESERVING_CLOUDS,
    discount,
    given_discount,
    years_of,
)
from gpuyard.planner.servers import unusable_prices
from gpuyard.specs.plan import RESERVED_YEARS, Acquisition, Plan


def assumptions(candidates: Candidates) -> tuple[str, ...]:
    """What the answer stands on that nobody measured, quoted or looked up."""
    plan = candidates.plan
    found = []
    bases = sorted({line.basis for line in candidates.lines.values()})
    found.append(f"The speed of one GPU is {' or '.join(bases)}; more GPUs are predicted.")
    found += [
        reserved_words(plan, acquisition)
        for acquisition in plan.search.ways
        if acquisition in RESERVED_YEARS
    ]
    if set(OWNED) & set(plan.search.ways):
        found += _owning(candidates)
    if not plan.policy.data_stays and set(plan.search.ways) - {*OWNED, "hybrid"}:
        start = plan.renting.start / 60
        found.append(f"Every rented run starts {start:g} minutes before its first step.")
        found.append(_data_words(candidates))
    if "spot" in plan.search.ways and not plan.policy.data_stays:
        found.append(
            f"Spot instances are taken away {plan.spot.interruptions_per_hour:g} times an hour, each."
        )
    if candidates.no_precision:
        found.append(f"Left out, no rate for this precision: {', '.join(candidates.no_precision)}.")
    unusable = ", ".join(f"{count} ({why})" for why, count in unusable_prices().items() if count)
    found.append(f"Rows of the price list that can't be used: {unusable}.")
    if plan.search.largest_batch is None:
        found.append(
            "No limit on the samples that one update sees: accuracy may suffer (search.largest_batch)."
        )
    return tuple(found)


def _owning(candidates: Candidates) -> list[str]:
    """Where bought machines stand and what they need."""
    premises, owning = candidates.premises, candidates.plan.owning
    own, shared = premises.own, premises.shared
    at = f" at {premises.name}" if premises.name else ""
    found = [
        f"Bought machines{at}: ${own.usd_per_kwh:g}/kWh at a PUE of {own.pue:g}, colocation at "
        f"${shared.rent_usd_per_kw_month or 0:g}/kW/month and ${shared.usd_per_kwh:g}/kWh at a PUE of "
        f"{shared.pue:g}, {owning.staff_hours_per_month:g} hours a month and machine at "
        f"${owning.staff:g}/h, {100 * owning.value_kept_per_year:.0f} % of the value kept each year; "
        "servers without a list price are estimated from parts."
    ]
    if own.build_usd_per_kw is not None:
        found.append(
            f"The room itself: ${own.build_usd_per_kw:,.0f} for each kW of machines, written off over "
            f"{BUILD_YEARS} years."
        )
    found += [f"Assumed of {premises.name}: {words}." for words in premises.assumed]
    if premises.name:
        found.append("Whether racks, cords and phases work out there, `gpuyard facility` says.")
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
        else f"at list prices of {known} ({row.date}), other clouds assumed as {ASSUMED_CLOUD}"
    )
    return f"Rented runs keep {stored} in the cloud and take out {out} each, {prices}."


def reserved_words(plan: Plan, acquisition: Acquisition) -> str:
    term, years = RESERVED_YEARS[acquisition], years_of(plan)
    if term > years:
        return f"{acquisition} is left out: it binds you for longer than the horizon."
    priced = _reserved_price(plan, acquisition)
    if years % term > 1e-6:
        priced += " Its last term runs past the horizon and is paid to its end."
    return priced


def _reserved_price(plan: Plan, acquisition: Acquisition) -> str:
    off = f"{100 * discount(plan, acquisition):.0f} % off the price on demand"
    if given_discount(plan, acquisition) is not None:
        return f"{acquisition} is {off}, as the plan says."
    clouds = ", ".join(sorted(RESERVING_CLOUDS))
    key = acquisition.replace("-", "_")
    return f"{acquisition} is assumed to be {off}, at {clouds} only; no list has it (prices.{key})."
