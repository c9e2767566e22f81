"""How gradients are packed for the exchange, and when each pack is ready."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpuyard.catalog import LayerProfile, ModelProfile
from gpuyard.predict import constants as c
from gpuyard.specs import StrategyName


@dataclass(frozen=True)
class Buckets:
    """In the order of the exchange: sizes, and the share of backward done when each is full."""

    size_bytes: npt.NDArray[np.float64]
    ready_share: npt.NDArray[np.float64]

    @property
    def total_bytes(self) -> float:
        return float(self.size_bytes.sum())


def pack(profile: ModelProfile, strategy: StrategyName) -> Buckets:
    """The buckets that a strategy makes where nobody has set their size."""
    return fill(profile, bucket_caps(strategy))


def bucket_caps(strategy: StrategyName, cap_bytes: float | None = None) -> tuple[float, ...]:
    """What closes the first bucket, the second and so on; the last cap holds for all that follow."""
    match strategy:
        case "ddp":
            cap = cap_bytes or c.DDP_BUCKET.value
            return (min(c.DDP_FIRST_BUCKET.value, cap), cap)
        case "horovod":
            return (cap_bytes or c.HOROVOD_FUSION.value,)
        case "parameter-server":
            return (0.0,)  # every layer on its own
        case "dataparallel":
            return (float("inf"),)


def fill(
    profile: ModelProfile,
    caps: Sequence[float],
    sent_bytes: Callable[[LayerProfile], float] = lambda layer: layer.gradient_bytes,
) -> Buckets:
    """Fill buckets layer by layer in backward order and close each once it has reached its cap.

    A bucket fills with gradients as they are; what is sent of each layer may be less.
    """
    backward_flops = sum(layer.forward_flops for layer in profile.layers)
    sizes: list[float] = []
    ready: list[float] = []
    filled = sent = done_flops = 0.0
    for index, layer in enumerate(profile.layers):
        filled += layer.gradient_bytes
        sent += sent_bytes(layer)
        done_flops += layer.forward_flops
        last = index == len(profile.layers) - 1
        if filled > 0 and (filled >= caps[min(len(sizes), len(caps) - 1)] or last):
            sizes.append(sent)
            # a model without counted FLOPs is taken as evenly spread over its layers
            ready.append(
                done_flops / backward_flops if backward_flops else (index + 1) / len(profile.layers)
            )
            filled = sent = 0.0
    return Buckets(np.array(sizes, dtype=float), np.array(ready, dtype=float))
