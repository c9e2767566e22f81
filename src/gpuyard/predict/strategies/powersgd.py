"""What PowerSGD sends instead of gradients, and what it costs the GPU (Vogels et al., NeurIPS 2019).

A matrix of n × m becomes two of n × r and m × r, exchanged one after the other. Profiles know how
many parameters a layer has, not its shape: its matrix is taken to be nine times as long as wide, as a
3 × 3 convolution with as many channels in as out is. A square one would shrink 1.7 times as much.
"""

import math
from collections.abc import Sequence

import numpy as np

from gpuyard.catalog import LayerProfile, ModelProfile
from gpuyard.predict import constants as c
from gpuyard.predict.strategies.buckets import Buckets, fill
from gpuyard.predict.table import Floats

RANK = 2
LENGTH_TO_WIDTH = 9.0
# error feedback added (2 reads, a write), two products (a read each), the matrix made again (a write),
# the new error (2 reads, a write): counted from torch's powerSGD_hook
_GRADIENT_PASSES = 9.0
# two products, the columns made orthogonal, the matrix made again, the error
_KERNELS_PER_LAYER = 10.0


def sent_bytes(layer: LayerProfile, rank: int = RANK) -> float:
    """Both factors in fp32; a layer that would not shrink goes as it is."""
    width = math.sqrt(layer.parameters / LENGTH_TO_WIDTH)
    factors = 4.0 * rank * (width + LENGTH_TO_WIDTH * width)
    return min(factors, float(layer.gradient_bytes))


def compressed(profile: ModelProfile, caps: Sequence[float], rank: int = RANK) -> Buckets:
    """The buckets as they go over the link: each as two, one for either factor."""
    whole = fill(profile, caps, lambda layer: sent_bytes(layer, rank))
    return Buckets(np.repeat(whole.size_bytes / 2, 2), np.repeat(whole.ready_share, 2))


def seconds(profile: ModelProfile, memory_bytes_per_second: Floats) -> Floats:
    """What a step takes longer on the GPU: passes over the gradients, and launches."""
    launches = len(profile.layers) * _KERNELS_PER_LAYER * c.KERNEL_LAUNCH.value
    return _GRADIENT_PASSES * profile.gradient_bytes / memory_bytes_per_second + launches
