"""How a model is trained to an accuracy: Adam, a rate for each layer, clips of equal loudness."""

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from gpuyard.measure.convergence.rates import rate

HELD_OUT_EVERY = 10
_SILENCE = 1e-4


def build_optimizer(module: nn.Module) -> Optimizer:
    """Adam at the rates of a first update."""
    groups = []
    for layer in module.modules():
        own = [p for p in layer.parameters(recurse=False) if p.requires_grad]
        if own:
            inputs = max(p[0].numel() if p.dim() > 1 else 1 for p in own)
            groups.append({"params": own, "lr": rate(inputs), "inputs": inputs})
    return Adam(groups, fused=True)


def set_rates(optimizer: Optimizer, updates: int) -> None:
    """What `build_optimizer` made goes on at the rates after so many updates."""
    for group in optimizer.param_groups:
        group["lr"] = rate(group["inputs"], updates)


def prepared(inputs: tuple[Tensor, ...], source: str) -> tuple[Tensor, ...]:
    """Speakers differ in loudness, which says nothing about the digit: clips get a mean square of 1."""
    if source != "spoken-digits":
        return inputs
    return tuple(clip / _loudness(clip) for clip in inputs)


def split(count: int) -> tuple[Tensor, Tensor]:
    """The samples to train on, and every tenth, which is held out."""
    every = torch.arange(count)
    held_out = every % HELD_OUT_EVERY == 0
    return every[~held_out], every[held_out]


def _loudness(clips: Tensor) -> Tensor:
    squares = clips.flatten(1).pow(2).mean(1).sqrt().clamp_min(_SILENCE)
    return squares.reshape(-1, *[1] * (clips.dim() - 1))
