"""What a plan stands on that nobody measured, quoted or looked up."""

from gpuyard import units
from gpuyard.catalog import gpus
from gpuyard.catalog.prices import ASSUMED_CLOUD, cloud_data
from gpuyard.facility.housing import BUILD_YEARS
from gpuyard.planner.candidates import Candidates
from gpuyard.planner.offers import OWNED, RESERVING_CLOUDS, discount, given_discount, years_of
from gpuyard.planner.result import dollars, precisions_words
from gpuyard.planner.servers import UNKNOWN_NETWORK, unusable_prices
from gpuyard.predict import STRATEGIES
from gpuyard.predict.compute import HALVES, ComputeBasis, computed_in
from gpuyard.predict.stacks.measured import base_words
from gpuyard.predict.stacks.posterior import described
from gpuyard.specs.plan import RESERVED_YEARS, Acquisition, Plan

_BASES: dict[ComputeBasis, str] = {
    "measured here": "measured here",
    "measured": "measured",
    "scaled": "scaled from a measurement",
    "roofline": "roofline estimate",
}


def assumptions(candidates: Candidates) -> tuple[str, ...]:
    """What the answer stands on that nobody measured, quoted or looked up."""
    plan = candidates.plan
    found = []
    lines = candidates.lines.values()
    bases = sorted({_BASES[line.basis] for there in lines for line in there.values()})
    found.append(
        f"Single-GPU speed: {' or '.join(bases)}; the speed of several is predicted{_known(candidates)}."
    )
    found += _gradients(candidates)
    found += filter(None, [base_words(candidates.trained.workload, candidates.trained.profile)])
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


def _known(candidates: Candidates) -> str:
    """What that stands on besides hardware."""
    workload = candidates.trained.workload
    named = f", by what was published of {workload.framework}" if described(workload) else ""
    several = [known for known in workload.measured if known.gpus > 1]
    used = [known for known in several if known.nodes == 1 or known.network]
    if not several:
        return named
    of = ", ".join(sorted({known.gpu for known in several}))
    left = len(several) - len(used)
    unused = f" ({left} of them unused: they name no network)" if left else ""
    figures = "1 figure" if len(several) == 1 else f"{len(several)} figures"
    return f"{named}, for {of} with {figures} of several GPUs that were measured{unused}"


def _gradients(candidates: Candidates) -> list[str]:
    """How wide they cross the network in each of the precisions, where that is not as usual."""
    trained = candidates.trained
    workload, strategy = trained.workload, STRATEGIES[trained.grid.strategy]
    tried = [workload.model_copy(update={"precision": one}) for one in candidates.precisions]
    return list(dict.fromkeys(filter(None, (strategy.gradient_words(one) for one in tried))))


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
