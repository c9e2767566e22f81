"""Answer a plan: create its candidates, with whole copies of the model or divided among GPUs."""

from collections.abc import Callable, Sequence
from pathlib import Path

from gpuyard.catalog import Gpu, ModelProfile
from gpuyard.catalog.specfiles import read_site, read_workload
from gpuyard.choices import LargePrecision
from gpuyard.errors import UserMistake
from gpuyard.planner.candidates import Candidates, create_candidates
from gpuyard.planner.choice import Choice
from gpuyard.planner.choices import create_choices
from gpuyard.planner.costs import Premises, create_premises
from gpuyard.planner.offers import (
    TOKEN_BYTES,
    Offer,
    estimate_cloud_data,
    list_offers,
    plan_runs,
)
from gpuyard.planner.ranking import rank
from gpuyard.planner.recommendation import build_result
from gpuyard.planner.result import MissingRate, PlanResult
from gpuyard.planner.servers import list_servers
from gpuyard.planner.sharded import ShardedTraining, find_precisions
from gpuyard.planner.throughput import (
    Grid,
    cap_lines,
    find_capped_speeds,
    find_compute_lines,
    find_missing_rates,
)
from gpuyard.planner.training import DataParallel
from gpuyard.predictor.calibration.document import Calibration
from gpuyard.predictor.large.model import describe_model
from gpuyard.predictor.large.search import list_divisors
from gpuyard.predictor.large.training import create_training, trained_share
from gpuyard.specs import Workload
from gpuyard.specs.plan import Plan
from gpuyard.specs.plan_candidates import PlanSearch
from gpuyard.specs.site import Site
from gpuyard.workloads import profile_model
from gpuyard.workloads.profiles import find_shape, needs_layout

_BATCH_FACTORS = (0.5, 1, 2, 4, 8)


Measurements = Callable[[Workload, ModelProfile], Workload]
"""Adds stored measurements of a model to a workload."""


def read_plan_workload(plan: Plan, directory: Path) -> Workload:
    """Return the plan's workload, from its file if it names one."""
    if isinstance(plan.workload, Workload):
        return plan.workload
    return read_workload(plan.workload, directory)


def make_plan(
    plan: Plan,
    directory: Path = Path(),
    calibration: Calibration | None = None,
    site: Site | None = None,
    figures: Measurements | None = None,
) -> PlanResult:
    """Search everything that the plan allows.

    Bought machines stand at `site`, or at the site that the plan names.
    """
    workload = read_plan_workload(plan, directory)
    if plan.tokens is not None:
        workload = workload.model_copy(update={"tokens": plan.tokens})
    premises = read_plan_premises(plan, directory, site)
    if needs_layout(workload, None, options_named=False):
        candidates = search_sharded(plan, workload, premises)
        return build_result(candidates, workload)
    if workload.dataset is None and workload.tokens is None:
        raise UserMistake(
            f"workload: {workload.name} has no 'dataset', so the number of samples in a run is unknown; "
            "give the workload dataset.samples and epochs, or 'tokens'"
        )
    profile = profile_model(workload)
    if figures is not None:
        workload = figures(workload, profile)
    return build_result(search(plan, workload, profile, calibration, premises), workload)


def read_plan_premises(plan: Plan, directory: Path, site: Site | None = None) -> Premises:
    """Describe where the plan's bought machines would stand."""
    if site is None and isinstance(plan.site, str):
        site = read_site(directory / plan.site)
    return create_premises(plan, site)


def search(
    plan: Plan,
    workload: Workload,
    profile: ModelProfile,
    calibration: Calibration | None = None,
    premises: Premises | None = None,
) -> Candidates:
    """Return the table of all candidates with their predictions and prices."""
    shape = find_shape(workload)
    sharding = create_training(workload) if shape is not None else None
    offers = list_offers(list_servers(plan), plan)
    gpus = _list_gpus(offers)
    precisions = plan.search.precision or ()
    lines = find_compute_lines(workload, profile, gpus, calibration, precisions)
    lines = cap_lines(lines, gpus, plan.search.power_cap)
    grid = Grid(
        tuple(sorted(set(plan.search.nodes))),
        plan.search.batch or _choose_batches(workload.batch_per_gpu),
        tuple(dict.fromkeys(plan.search.remedies)),
    )
    is_precision_given = bool(precisions or workload.precision)
    sharded = None
    if sharding is not None:
        tried = {gpu: tuple(by_precision) for gpu, by_precision in lines.items()}
        speeds = find_capped_speeds(gpus, plan.search.power_cap)
        sharded = ShardedTraining(
            workload, sharding, grid, tried, is_precision_given, speeds=speeds
        )
    training = DataParallel(
        workload, profile, lines, grid, calibration, is_precision_given, sharded
    )
    candidates = create_candidates(
        plan,
        training,
        samples_per_run=_count_samples(workload, sharding.length if sharding else None),
        tokens_per_sample=sharding.length if sharding else None,
        offers=offers,
        runs=plan_runs(plan),
        premises=premises or create_premises(plan),
        data=estimate_cloud_data(plan, workload, profile.parameters, profile.input_bytes),
        missing_rates=_group_missing(
            find_missing_rates(lines, workload, profile, gpus, precisions), offers
        ),
    )
    return _require_some(candidates)


def find_cheapest_rental(workload: Workload, gpu: str, gpus: int) -> Choice | None:
    """Return the cheapest machines rented on demand that train the workload once on this number of GPUs.

    Each offer trains with the fastest layout that fits on it, over its own network.
    """
    search_ways = PlanSearch(ways=("on-demand",), gpus=(gpu,), nodes=tuple(list_divisors(gpus)))
    plan = Plan.model_validate(
        {"name": workload.name, "workload": workload, "runs_per_month": 1, "horizon": "1 month",
         "search": search_ways}
    )  # fmt: skip
    try:
        candidates = search_sharded(plan, workload, gpus=gpus)
    except UserMistake:  # no cloud rents out this GPU in such machines
        return None
    ranking = rank(candidates)
    if ranking.cheapest is None:
        return None
    return create_choices(candidates, ranking, [ranking.cheapest])[0]


def search_sharded(
    plan: Plan, workload: Workload, premises: Premises | None = None, gpus: int | None = None
) -> Candidates:
    """Return the table of all candidates for a model that is divided among GPUs; `gpus` fixes their number."""
    training = create_training(workload)
    offers = list_offers(list_servers(plan), plan)
    kinds = _list_gpus(offers)
    spec = workload.parallel
    own_precision = workload.precision or (spec.precision if spec else None)
    precisions: tuple[LargePrecision, ...] = plan.search.precision or (
        (own_precision,) if own_precision else ()
    )
    speeds = find_capped_speeds(kinds, plan.search.power_cap)
    by_gpu = find_precisions([gpu for gpu in kinds if gpu.id in speeds], precisions)
    missing = [(g.id, p) for g in kinds for p in precisions if p not in by_gpu.get(g.id, ())]
    grid = Grid(tuple(sorted(set(plan.search.nodes))), (1,), ("none",))
    model = describe_model(training.shape)
    trained = float(model.parameters) * trained_share(training, model)
    candidates = create_candidates(
        plan,
        ShardedTraining(workload, training, grid, by_gpu, bool(precisions), gpus, speeds),
        samples_per_run=_count_samples(workload, training.length),
        tokens_per_sample=training.length,
        offers=offers,
        runs=plan_runs(plan),
        premises=premises or create_premises(plan),
        data=estimate_cloud_data(plan, workload, trained, TOKEN_BYTES * training.length),
        missing_rates=_group_missing(missing, offers),
    )
    return _require_some(candidates)


def _list_gpus(offers: Sequence[Offer]) -> list[Gpu]:
    return list({offer.server.gpu.id: offer.server.gpu for offer in offers}.values())


def _group_missing(
    missing: Sequence[tuple[str, LargePrecision]], offers: Sequence[Offer]
) -> list[MissingRate]:
    return [
        MissingRate(gpu, precision, tuple(dict.fromkeys(o.server.id for o in offers if o.server.gpu.id == gpu)))
        for gpu, precision in missing
    ]  # fmt: skip


def _count_samples(workload: Workload, sequence: int | None) -> float:
    """Return the samples of one run; tokens take precedence over the dataset."""
    if workload.tokens is not None and sequence is None:
        raise UserMistake(
            f"workload: {workload.name} has 'tokens', but its model is not a transformer that gpuyard knows by shape; "
            "give dataset.samples and epochs"
        )
    if workload.tokens is not None and sequence is not None:
        return workload.tokens / sequence
    if workload.dataset is None:
        raise UserMistake(
            f"workload: {workload.name} has neither 'tokens' nor a 'dataset', so the length of a run is unknown; "
            "add tokens: 20B to the plan"
        )
    return float(workload.dataset.samples * workload.epochs)


def _choose_batches(usual: int) -> tuple[int, ...]:
    return tuple(dict.fromkeys(max(1, round(usual * factor)) for factor in _BATCH_FACTORS))


def _require_some(candidates: Candidates) -> Candidates:
    if not len(candidates):
        raise UserMistake(f"{candidates.plan.name}: no candidates: {_explain_empty(candidates)}")
    return candidates


def _explain_empty(candidates: Candidates) -> str:
    if candidates.missing_rates:
        missing = ", ".join(rate.description for rate in candidates.missing_rates)
        return f"the rate is unknown {missing}"
    training = candidates.training
    if candidates.offers and isinstance(training, ShardedTraining):
        sizes = {offer.server.gpus for offer in candidates.offers}
        if reason := training.explain_refusal(sizes):
            return reason
    if candidates.offers:
        return "no node count in 'search.nodes' is possible; several machines need a network"
    return "no offer in 'search.offers' and 'search.gpus' can be acquired by 'search.ways'"
