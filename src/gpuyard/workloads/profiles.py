"""The profile of a workload's model: from the catalog, or from running the user's own module once."""

import functools

from gpuyard.catalog.models import ModelProfile, models
from gpuyard.errors import GpuyardError
from gpuyard.specs import Workload
from gpuyard.workloads.own_code import check_allowed, code_digest
from gpuyard.workloads.zoo import MODELS


def profile_of(workload: Workload) -> ModelProfile:
    """What the model asks of hardware. A model that the catalog does not have is run in another process.

    Raises CodeNotAllowed where that would run code which is not the user's own.
    """
    known = catalog_profile(workload)
    if known is not None:
        return known
    from gpuyard.workloads.resolve import require_torch

    require_torch()
    check_allowed(workload)
    return _profile_own(workload, code_digest(workload.model, workload))


def catalog_profile(workload: Workload) -> ModelProfile | None:
    """Without running anything; None for a model of the user's own."""
    built_in = {factory: name for name, factory in MODELS.items()}
    name = built_in.get(workload.model, workload.model)
    return None if ":" in name else models().get(name)


@functools.lru_cache(maxsize=64)
def _profile_own(workload: Workload, code: str | None) -> ModelProfile:
    del code  # whose change is a change of the model
    from gpuyard.workloads.profile_process import profile_elsewhere

    return profile_elsewhere(workload)


def profile_here(workload: Workload) -> ModelProfile:
    """In this process: for ranks, and for the process that profiles."""
    known = catalog_profile(workload)
    if known is not None:
        return known
    from gpuyard.workloads.resolve import build_task, require_torch

    require_torch()
    import torch

    from gpuyard.workloads.profiling import profile_task

    try:
        with torch.device("meta"):  # no memory, no arithmetic: a model of any size is quick
            task = build_task(workload)
            return profile_task(task, id=workload.name, name=workload.model)
    except (Exception, SystemExit):  # noqa: BLE001
        # some models look at their values, which "meta" has none of: run them for real, and if it
        # was the user's own fault it comes again and is told
        return _profile_for_real(workload)


def _profile_for_real(workload: Workload) -> ModelProfile:
    from gpuyard.workloads.profiling import profile_task
    from gpuyard.workloads.resolve import build_task, own_code_fault

    task = build_task(workload)
    try:
        return profile_task(task, id=workload.name, name=workload.model)
    except GpuyardError:
        raise
    except (Exception, SystemExit) as fault:
        raise own_code_fault(
            f"{workload.model} can't be trained on {task.sample}", fault
        ) from fault
