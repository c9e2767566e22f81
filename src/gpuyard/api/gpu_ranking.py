"""Rank GPUs for a workload by speed, price, power, or memory."""

from pathlib import Path
from typing import TYPE_CHECKING

from gpuyard.api.inputs import load_calibration, read_profiled_workload
from gpuyard.api.result import Result, Row, wrap
from gpuyard.catalog import gpus, prices
from gpuyard.catalog.published import published_figures
from gpuyard.errors import UnknownName

if TYPE_CHECKING:
    from gpuyard.specs import Workload


def rank_gpus(
    workload: "str | Path | Workload",
    *,
    precision: str | None = None,
    batch: int | None = None,
    gpu: str | None = None,
    cloud: str | None = None,
    min_memory_gb: float = 0.0,
    sort: str = "speed",
) -> Result[Row]:
    """Rank all GPUs, those whose names contain `gpu`, or those that a cloud rents, for a workload or catalog model."""
    from gpuyard.planner.gpu_ranking import rank_gpus as rank_candidates
    from gpuyard.report.answers.gpu_ranking import gpu_ranking_answer

    if cloud is not None:
        all_clouds = {price.cloud for price in prices()}
        if cloud not in all_clouds:
            raise UnknownName("cloud", cloud, all_clouds)
    spec, profile = read_profiled_workload(workload, precision)
    if batch is not None:
        spec = spec.model_copy(update={"batch_per_gpu": batch})
    names = find_gpus(gpu) if gpu else frozenset(gpus().ids())
    candidates = [
        candidate
        for candidate in gpus()
        if candidate.id in names
        and candidate.memory_gb >= min_memory_gb
        # accelerators without CUDA or ROCm are compared only if they are named
        and (gpu or not candidate.needs_vendor_software)
    ]
    ranked, without = rank_candidates(
        spec,
        profile,
        candidates,
        sort=sort,
        clouds=(cloud,) if cloud else (),
        calibration=load_calibration(None),
    )
    if cloud is not None:
        ranked = [candidate for candidate in ranked if candidate.rented is not None]
    candidate_ids = {candidate.id for candidate in candidates}
    figures = [
        figure
        for figure in published_figures()
        if figure.model == spec.model_name
        and figure.gpu in candidate_ids
        and figure.gpus
        and not figure.note
    ]
    figures.sort(key=lambda f: (-(f.per_gpu or 0.0), f.id))
    answer = gpu_ranking_answer(spec, ranked, without, figures, sort=sort)
    return Result(answer, wrap(answer.document["gpus"]))


def find_gpus(part: str) -> frozenset[str]:
    """Return the ids of the catalog's GPUs that contain this text; there must be at least one."""
    matches = frozenset(name for name in gpus().ids() if part.lower() in name)
    if not matches:
        raise UnknownName("GPU", part, gpus().ids())
    return matches
