"""How gradients are packed for the exchange, and when each pack is ready."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gpuyard.catalog import LayerProfile, ModelProfile
from gpuyard.predict.table import Floats


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
