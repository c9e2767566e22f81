"""How a model is trained to an accuracy: Adam, a rate for each layer, clips of equal loudness."""

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a plan names the rates, and needs no torch
    from torch import Tensor, nn
    from torch.optim import Optimizer

# tried on the linear spoken-digit model: one rate for all layers is too much for the first, whose
# 12,000 inputs move together, and too little for the last
FIRST_RATE = 0.03
# at the first rate the conv model's loss went up and down from its eighth epoch of 36 updates on
KEPT = 0.85
KEPT_AFTER_UPDATES = 36
LEAST_KEPT = 0.05  # small data sets may need hundreds of epochs; they must not come to a halt
HELD_OUT_EVERY = 10
_SILENCE = 1e-4


def rate(inputs: int, updates: int = 0) -> float:
    """How large a step the weights of a layer take whose neurons have so many inputs, after so many updates.

    It follows from what was done, not from how much is wanted: a run that is taken up again, or that is
    given more epochs, takes the same steps.
    """
    kept = max(LEAST_KEPT, float(KEPT ** (updates / KEPT_AFTER_UPDATES)))
    return FIRST_RATE / math.sqrt(inputs) * kept


def build_optimizer(module: "nn.Module") -> "Optimizer":
    """Adam at the rates of a first update."""
    from torch.optim import Adam

    groups = []
    for layer in module.modules():
        own = [p for p in layer.parameters(recurse=False) if p.requires_grad]
        if own:
            inputs = max(p[0].numel() if p.dim() > 1 else 1 for p in own)
            groups.append({"params": own, "lr": rate(inputs), "inputs": inputs})
    return Adam(groups, fused=True)


def set_rates(optimizer: "Optimizer", updates: int) -> None:
    """What `build_optimizer` made goes on at the rates after so many updates."""
    for group in optimizer.param_groups:
        group["lr"] = rate(group["inputs"], updates)


def prepared(inputs: "tuple[Tensor, ...]", source: str) -> "tuple[Tensor, ...]":
    """Speakers differ in loudness, which says nothing about the digit: clips get a mean square of 1."""
    if source != "spoken-digits":
        return inputs
    return tuple(clip / _loudness(clip) for clip in inputs)


def split(count: int) -> "tuple[Tensor, Tensor]":
    """The samples to train on, and every tenth, which is held out."""
    import torch

    every = torch.arange(count)
    held_out = every % HELD_OUT_EVERY == 0
    return every[~held_out], every[held_out]


def _loudness(clips: "Tensor") -> "Tensor":
    squares = clips.flatten(1).pow(2).mean(1).sqrt().clamp_min(_SILENCE)
    return squares.reshape(-1, *[1] * (clips.dim() - 1))
