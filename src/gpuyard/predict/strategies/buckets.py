"""How gradients are packed for the exchange, when each pack is ready, and what PowerSGD sends instead.

PowerSGD (Vogels et al., NeurIPS 2019) makes of a matrix of n × m two of n × r and m × r, exchanged one after the
other. Profiles know how many parameters a layer has, not its shape: its matrix is taken to be nine times as long
as wide, as a 3 × 3 convolution with as many channels in as out is. A square one would shrink 1.7 times as much.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gpuyard.catalog import LayerProfile, ModelProfile
from gpuyard.predict import constants as c
from gpuyard.predict.table import Floats

POWERSGD_RANK = 2
LENGTH_TO_WIDTH = 9.0
# error feedback added (2 reads, a write), two products (a read each), the matrix made again (a write),
# the new error (2 reads, a write): counted from torch's powerSGD_hook
_GRADIENT_PASSES = 9.0
# two products, the columns made orthogonal, the matrix made again, the error
_KERNELS_PER_LAYER = 10.0


@dataclass(frozen=True)
class Buckets:
    """In the order of the exchange: sizes, and the share of backward done when each is full."""

    size_bytes: Floats
    ready_share: Floats

    @property
    def total_bytes(self) -> float:
        return float(self.size_bytes.sum())


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


def powersgd_bytes(layer: LayerProfile, rank: int = POWERSGD_RANK) -> float:
    """Both factors in fp32; a layer that would not shrink goes as it is."""
    width = math.sqrt(layer.parameters / LENGTH_TO_WIDTH)
    factors = 4.0 * rank * (width + LENGTH_TO_WIDTH * width)
    return min(factors, float(layer.gradient_bytes))


def powersgd_buckets(
    profile: ModelProfile, caps: Sequence[float], rank: int = POWERSGD_RANK
) -> Buckets:
    """The buckets as they go over the link: each as two, one for either factor."""
    whole = fill(profile, caps, lambda layer: powersgd_bytes(layer, rank))
    return Buckets(np.repeat(whole.size_bytes / 2, 2), np.repeat(whole.ready_share, 2))


def powersgd_seconds(profile: ModelProfile, memory_bytes_per_second: Floats) -> Floats:
    """What a step takes longer on the GPU: passes over the gradients, and launches."""
    launches = len(profile.layers) * _KERNELS_PER_LAYER * c.KERNEL_LAUNCH.value
    return _GRADIENT_PASSES * profile.gradient_bytes / memory_bytes_per_second + launches
