"""The recipe for training to an accuracy: Adam, a learning rate for each layer, and clips of equal loudness."""

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a plan uses the rates, and works without torch
    from torch import Tensor, nn
    from torch.optim import Optimizer

# tuned on the linear spoken-digit model: one rate for all layers is too high for the first, whose
# 12,000 inputs change together, and too low for the last
BASE_LEARNING_RATE = 0.03
# without decay, the conv model's loss oscillates from its eighth epoch of 36 updates on
DECAY = 0.85
DECAY_UPDATES = 36
MIN_DECAY = 0.05  # small datasets may need hundreds of epochs, and training must not stall
HELD_OUT_EVERY = 10
_SILENCE = 1e-4


def learning_rate(inputs: int, updates: int = 0) -> float:
    """Return the learning rate of a layer whose neurons have this many inputs, after this many updates.

    It depends on the updates done, not on the planned number of epochs, so a resumed or extended run takes the same
    steps.
    """
    decay = max(MIN_DECAY, float(DECAY ** (updates / DECAY_UPDATES)))
    return BASE_LEARNING_RATE / math.sqrt(inputs) * decay


def build_optimizer(module: "nn.Module") -> "Optimizer":
    """Create Adam with the learning rates of the first update."""
    from torch.optim import Adam

    groups = []
    for layer in module.modules():
        parameters = [p for p in layer.parameters(recurse=False) if p.requires_grad]
        if parameters:
            inputs = max(p[0].numel() if p.dim() > 1 else 1 for p in parameters)
            groups.append({"params": parameters, "lr": learning_rate(inputs), "inputs": inputs})
    return Adam(groups, fused=True)


def set_learning_rates(optimizer: "Optimizer", updates: int) -> None:
    """Set the learning rates of an optimizer from `build_optimizer` for this many updates."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(group["inputs"], updates)


def normalize_loudness(inputs: "tuple[Tensor, ...]", source: str) -> "tuple[Tensor, ...]":
    """Scale clips of spoken digits to a mean square of 1, because loudness depends on the speaker, not the digit."""
    if source != "spoken-digits":
        return inputs
    return tuple(clips / _root_mean_square(clips) for clips in inputs)


def split_samples(count: int) -> "tuple[Tensor, Tensor]":
    """Return the indices of the training samples, and of every tenth sample, which is held out."""
    import torch

    indices = torch.arange(count)
    held_out = indices % HELD_OUT_EVERY == 0
    return indices[~held_out], indices[held_out]


def _root_mean_square(clips: "Tensor") -> "Tensor":
    loudness = clips.flatten(1).pow(2).mean(1).sqrt().clamp_min(_SILENCE)
    return loudness.reshape(-1, *[1] * (clips.dim() - 1))
