"""What feeds a GPU: the CPU cores that prepare its samples, and how far samples differ."""

import numpy as np

from gpuyard.predict import constants as c
from gpuyard.predict.constants import Constant
from gpuyard.predict.platform.platform import Platform
from gpuyard.specs import Workload


def cores_for_each_gpu(workload: Workload, platform: Platform, gpus_in_machine: int) -> float:
    """How many cores work for one GPU's input: its workers, or its share of the machine's cores."""
    dataset = workload.dataset
    if dataset is None or dataset.preprocess is None or platform.input_is_in_compute:
        return np.inf
    if platform.cores is None:
        return float(dataset.input_workers or c.INPUT_WORKERS.value)
    share = platform.cores / gpus_in_machine
    return share if dataset.input_workers is None else min(float(dataset.input_workers), share)


def input_constants(workload: Workload, platform: Platform) -> tuple[Constant, ...]:
    """What had to be assumed about them."""
    dataset = workload.dataset
    if dataset is None or dataset.preprocess is None or platform.input_is_in_compute:
        return ()
    known = dataset.input_workers is not None or platform.cores is not None
    return () if known else (c.INPUT_WORKERS,)


def variation_of(workload: Workload, usual: Constant) -> Constant:
    """What the workload says of its samples, or what is usual."""
    given = workload.dataset.variation if workload.dataset else None
    if given is None:
        return usual
    return Constant(usual.name, given, usual.unit, "given", "the workload's dataset.variation")
