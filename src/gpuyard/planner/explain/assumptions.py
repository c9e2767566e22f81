"""The assumptions of a plan: everything that was not measured, quoted, or looked up."""

from gpuyard import units
from gpuyard.catalog import gpus
from gpuyard.catalog.interruptions import interruptions
from gpuyard.catalog.prices import ASSUMED_CLOUD, cloud_data
from gpuyard.economics.interruption_rates import SPOT_PER_HOUR
from gpuyard.facilities.housing import BUILD_YEARS
from gpuyard.planner.candidates import Candidates
from gpuyard.planner.choice import format_dollars, format_precisions, join_with_or
from gpuyard.planner.offers import (
    OWNED,
    RESERVING_CLOUDS,
    horizon_years,
    plan_discount,
    reserved_discount,
)
from gpuyard.planner.servers import UNKNOWN_NETWORK, count_unusable_prices
from gpuyard.planner.training import DataParallel
from gpuyard.predictor import STRATEGIES
from gpuyard.predictor.compute import HALVES, ComputeBasis, resolve_compute_precision
from gpuyard.predictor.software_stacks.evidence import describe_superlinear_figures
from gpuyard.predictor.software_stacks.posterior import has_published_framework
from gpuyard.specs import Workload
from gpuyard.specs.plan import Plan
from gpuyard.specs.plan_candidates import RESERVED_YEARS, Acquisition

_BASES: dict[ComputeBasis, str] = {
    "measured here": "measured here",
    "measured": "measured",
    "scaled": "scaled from a measurement",
    "published": "published figures",
    "roofline": "roofline estimate corrected by published figures",
}


def list_assumptions(candidates: Candidates) -> tuple[str, ...]:
    """List everything that the answer relies on without a measurement, a quote, or a source."""
    plan = candidates.plan
    training = candidates.training
    if isinstance(training, DataParallel):
        assumptions = _describe_data_parallel(candidates, training)
    else:
        assumptions = _describe_sharded(candidates)
    assumptions += [
        describe_reserved(plan, acquisition)
        for acquisition in plan.search.ways
        if acquisition in RESERVED_YEARS
    ]
    if set(OWNED) & set(plan.search.ways):
        assumptions += _describe_owning(candidates)
    if not plan.policy.data_stays and set(plan.search.ways) - {*OWNED, "hybrid"}:
        start = plan.renting.start / 60
        assumptions.append(f"A rented run is billed from {start:g} minutes before its first step.")
        assumptions.append(_describe_cloud_data(candidates))
    if "spot" in plan.search.ways and not plan.policy.data_stays:
        assumptions.append(_describe_spot_interruptions(plan.spot.interruptions_per_hour))
    unknown = {o.server.cloud for o in candidates.offers if o.network_assumed}
    if unknown:
        clouds = ", ".join(sorted(cloud for cloud in unknown if cloud))
        assumptions.append(
            f"Network between several machines of {clouds}: if it is unknown, {UNKNOWN_NETWORK}."
        )
    for missing in candidates.missing_rates:
        offers = ", ".join(missing.offers)
        assumptions.append(f"Left out because the rate is unknown {missing.description}: {offers}.")
    unusable = ", ".join(
        f"{count} ({why})" for why, count in count_unusable_prices().items() if count
    )
    if unusable:
        assumptions.append(f"Unusable rows of the price list: {unusable}.")
    if plan.search.largest_batch is None and isinstance(training, DataParallel):
        assumptions.append(
            "Caveat: samples per update are not limited, so accuracy may suffer (search.largest_batch)."
        )
    return tuple(assumptions)


def _describe_data_parallel(candidates: Candidates, training: DataParallel) -> list[str]:
    """Describe the speed of GPUs that each hold a whole copy of the model."""
    lines = training.lines.values()
    bases = sorted({_BASES[line.basis] for by_precision in lines for line in by_precision.values()})
    assumptions = [
        f"Single-GPU speed: {join_with_or(bases)}; the speed of several is predicted"
        f"{_describe_evidence(training.workload)}.",
        *_describe_gradients(candidates, training),
    ]
    superlinear = describe_superlinear_figures(training.workload, training.profile)
    if superlinear:
        assumptions.append(superlinear)
    return assumptions + _describe_precision(candidates, training)


def _describe_spot_interruptions(per_hour: float | None) -> str:
    if per_hour is not None:
        return f"Each spot instance is interrupted {per_hour:g} times per hour."
    published = ", ".join(
        f"{row.cloud} {row.instances}" for row in interruptions() if row.kind == "spot"
    )
    return (
        f"Each spot instance is interrupted {SPOT_PER_HOUR:g} times per hour (assumed; set "
        f"spot.interruptions_per_hour), less often where its cloud publishes a share: {published}."
    )


def _describe_sharded(candidates: Candidates) -> list[str]:
    """Describe the speed of GPUs among which a model is divided."""
    count = len(candidates.throughputs.layouts)
    figures = candidates.training.workload.parallel
    own = ", corrected by your own figures" if figures and figures.measured else ""
    default = "" if candidates.training.precision_given else ", the fastest usual one of each GPU"
    return [
        f"Speed and memory: formulas fitted to published runs of large models{own}; {count:,} combinations of "
        "machines each train with the fastest layout that fits (--strategy auto).",
        f"Precision: {format_precisions(candidates.precisions)}{default}.",
    ]


def _describe_evidence(workload: Workload) -> str:
    """Describe the published and measured figures that predictions of several GPUs use."""
    published = (
        f", from figures published for {workload.framework}"
        if has_published_framework(workload)
        else ""
    )
    several = [figure for figure in workload.measured if figure.gpus > 1]
    if not several:
        return published
    unused_count = sum(not (figure.nodes == 1 or figure.network) for figure in several)
    unused = f" ({unused_count} of them unused: they name no network)" if unused_count else ""
    gpu_names = ", ".join(sorted({figure.gpu for figure in several}))
    figures = "1 figure" if len(several) == 1 else f"{len(several)} figures"
    return f"{published}, for {gpu_names} from {figures} measured on several GPUs{unused}"


def _describe_gradients(candidates: Candidates, training: DataParallel) -> list[str]:
    """Describe the width of gradients on the network in each precision, if it is unusual."""
    workload, strategy = training.workload, STRATEGIES[training.grid.strategy]
    variants = (workload.model_copy(update={"precision": p}) for p in candidates.precisions)
    descriptions = (strategy.describe_gradients(variant) for variant in variants)
    return list(dict.fromkeys(filter(None, descriptions)))


def _describe_precision(candidates: Candidates, training: DataParallel) -> list[str]:
    """Describe the tried precisions, untried mixed precision, and GPUs that gain only memory from it."""
    tried = candidates.precisions
    default = ", PyTorch's default: tf32 for convolutions and RNNs on NVIDIA GPUs that have it, otherwise fp32"
    why = "" if training.precision_given else default
    sentences = [f"Precision: {format_precisions(tried)}{why}."]
    if not set(tried) & set(HALVES):
        sentences.append(
            "Mixed precision was not tried; to try it, use 'search.precision: [tf32, bf16]' or "
            "'--precision tf32,bf16'."
        )
    for precision in HALVES:
        slow = sorted(
            name
            for name, lines in training.lines.items()
            if precision in lines
            and resolve_compute_precision(precision, gpus().get(name)) != precision
        )
        if slow:
            sentences.append(
                f"{precision} is no faster than fp32 and only saves memory on: {', '.join(slow)}."
            )
    return sentences


def _describe_owning(candidates: Candidates) -> list[str]:
    """Describe where bought machines stand and what they cost to run."""
    premises, owning = candidates.premises, candidates.plan.owning
    own, colocation = premises.on_premises, premises.colocation
    at = f" at {premises.name}" if premises.name else ""
    sentences = [
        f"Bought machines{at}: ${own.usd_per_kwh:g}/kWh at a PUE of {own.pue:g}, colocation at "
        f"${colocation.rent_usd_per_kw_month or 0:g}/kW/month and ${colocation.usd_per_kwh:g}/kWh at a PUE of "
        f"{colocation.pue:g}, {owning.staff_hours_per_month:g} staff hours per machine and month at "
        f"${owning.staff:g}/h, {100 * owning.value_kept_per_year:.0f}% of resale value kept per year; "
        "servers without a list price are estimated from parts."
    ]
    kept = {o.server.id: o.server for o in candidates.offers if o.acquisition == "keep"}
    sentences += [
        f"You have {s.owned} × {s.name}, worth {format_dollars(s.value_usd)} each ({s.price_source}); "
        f"under load one draws {units.format_watts(s.watts)}."
        for s in kept.values()
    ]
    sentences.append(premises.tariff.sentence)
    if own.build_usd_per_kw is not None:
        sentences.append(
            f"The room itself: ${own.build_usd_per_kw:,.0f} per kW of machines, written off over "
            f"{BUILD_YEARS} years."
        )
    sentences += [f"Assumed for {premises.name}: {assumption}." for assumption in premises.assumed]
    if premises.name:
        sentences.append(
            f"The choice, the alternatives, and the best options were designed as rooms at {premises.name}, like "
            "`gpuyard facility` does, with racks, cords, and phases."
        )
    return sentences


def _describe_cloud_data(candidates: Candidates) -> str:
    data = candidates.data
    stored, out = (units.format_bytes(gb * 1e9) for gb in (data.stored_gb, data.out_gb_per_run))
    row = cloud_data().get(ASSUMED_CLOUD)
    listed = ", ".join(cloud_data().ids())
    if data.renting.storage is not None and data.renting.egress is not None:
        prices = "at the plan's prices"
    else:
        prices = f"at list prices of {listed} ({row.date}); other clouds are assumed to charge like {ASSUMED_CLOUD}"
    return f"Rented runs store {stored} in the cloud and download {out} each, {prices}."


def describe_reserved(plan: Plan, acquisition: Acquisition) -> str:
    """Describe the price of a reserved term and where it comes from."""
    term, years = RESERVED_YEARS[acquisition], horizon_years(plan)
    if term > years:
        return f"{acquisition} is left out: its term is longer than the horizon."
    discount = f"{100 * reserved_discount(plan, acquisition):.0f}% off the on-demand price"
    if plan_discount(plan, acquisition) is not None:
        price = f"{acquisition} is {discount}, from the plan."
    else:
        clouds = ", ".join(sorted(RESERVING_CLOUDS))
        key = acquisition.replace("-", "_")
        price = f"{acquisition} is assumed to be {discount}, at {clouds} only; no price list has it (prices.{key})."
    if years % term > 1e-6:
        price += " Its last term runs past the horizon and is paid to its end."
    return price
