"""Reads how long a backward pass under torch's DistributedDataParallel waits for the exchange of gradients.

DDP exchanges gradients during the backward pass and times some of the steps itself: the computation of the backward
pass, the exchange, and their overlap. The rest of the exchange is the time in which the rank only waits. Reading these
times costs about 60 µs, and needs neither a communication hook nor a change to the training.
"""

import gc
import sys
from typing import Any

_CPU_SAMPLE_RATE = 1
# on GPUs, DDP waits for its events at the next forward pass of a timed step, so few steps are timed
_GPU_SAMPLE_RATE = 10
_MAX_MODELS = 4


def find_ddp_models() -> list[Any]:
    """Return the models that this process wraps in DDP; looking through all objects takes some 10 ms."""
    module = sys.modules.get("torch.nn.parallel.distributed")
    wrapper = getattr(module, "DistributedDataParallel", None)
    if not isinstance(wrapper, type):
        return []
    # isinstance() would ask lazy objects for their class, and so run code of others
    models = [item for item in gc.get_objects() if issubclass(type(item), wrapper)]
    return models[:_MAX_MODELS]


class DdpExchange:
    """Reads the waiting time of one step from each model."""

    def __init__(self, models: list[Any]) -> None:
        self._models = models
        self._iterations = [-1] * len(models)
        for model in models:
            on_cpu = getattr(model, "device_type", "cpu") == "cpu"
            model._set_ddp_runtime_logging_sample_rate(
                _CPU_SAMPLE_RATE if on_cpu else _GPU_SAMPLE_RATE
            )

    def read(self) -> float | None:
        """Return the seconds of the newest timed step; None if no step was timed since the last read."""
        total, fresh = 0.0, False
        for number, model in enumerate(self._models):
            times = model._get_ddp_logging_data()
            if times.get("iteration", -1) == self._iterations[number]:
                continue
            self._iterations[number] = times.get("iteration", -1)
            exchange = times.get("backward_comm_time", 0)
            if exchange > 0:
                fresh = True
                overlap = times.get("backward_compute_comm_overlap_time", 0)
                total += max(0, exchange - overlap) / 1e9
        return total if fresh else None
