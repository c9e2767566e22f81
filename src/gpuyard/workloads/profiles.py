"""The profile of a workload's model: from the catalog, or from running the user's own module once."""

from gpuyard.catalog.models import ModelProfile, models
from gpuyard.errors import GpuyardError
from gpuyard.specs import Workload
from gpuyard.workloads.zoo import MODELS


def profile_of(workload: Workload) -> ModelProfile:
    """What the model asks of hardware. Only a model that the catalog does not have needs torch."""
    built_in = {factory: name for name, factory in MODELS.items()}
    name = built_in.get(workload.model, workload.model)
    if ":" not in name:
        return models().get(name)
    return _profile_own(workload)


def _profile_own(workload: Workload) -> ModelProfile:
    from gpuyard.workloads.resolve import build_task, require_torch

    require_torch()
    import torch

    from gpuyard.workloads.profiling import profile_task

    try:
        with torch.device("meta"):  # no memory, no arithmetic: a model of any size is quick
            task = build_task(workload)
            return profile_task(task, id=workload.name, name=workload.model)
    except Exception:  # noqa: BLE001
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
    except Exception as fault:
        raise own_code_fault(
            f"{workload.model} can't be trained on {task.sample}", fault
        ) from fault
