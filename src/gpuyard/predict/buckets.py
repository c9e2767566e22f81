"""How gradients are packed for the exchange, and when each pack is ready."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpuyard.catalog import ModelProfile
from gpuyard.predict import constants as c
from gpuyard.specs import Strategy


@dataclass(frozen=True)
class Buckets:
    """In the order of the exchange: sizes, and the share of backward done when each is full."""

    size_bytes: npt.NDArray[np.float64]
    ready_share: npt.NDArray[np.float64]

    @property
    def total_bytes(self) -> float:
        return float(self.size_bytes.sum())


def pack(profile: ModelProfile, strategy: Strategy) -> Buckets:
    """Fill buckets layer by layer in backward order and close each once it has reached its cap."""
    match strategy:
        case "ddp":
            caps = [c.DDP_FIRST_BUCKET.value, c.DDP_BUCKET.value]
        case "horovod":
            caps = [c.HOROVOD_FUSION.value]
        case "parameter-server":
            caps = [0.0]  # every layer on its own
        case "dataparallel":
            caps = [float("inf")]
    backward_flops = sum(layer.forward_flops for layer in profile.layers)
    sizes: list[float] = []
    ready: list[float] = []
    filled = done_flops = 0.0
    for index, layer in enumerate(profile.layers):
        filled += layer.gradient_bytes
        done_flops += layer.forward_flops
        last = index == len(profile.layers) - 1
        if filled > 0 and (filled >= caps[min(len(sizes), len(caps) - 1)] or last):
            sizes.append(filled)
            # a model without counted FLOPs is taken as evenly spread over its layers
            ready.append(
                done_flops / backward_flops if backward_flops else (index + 1) / len(profile.layers)
            )
            filled = 0.0
    return Buckets(np.array(sizes, dtype=float), np.array(ready, dtype=float))
