"""The two models of the founding experiment, which recognize the digit in 1.5 s of 8 kHz sound.

The linear model has little compute and large gradients; the conv model is the reverse. So on the same hardware, the
first waits for the network and the second for the GPU.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from gpuyard.workloads.digit_clips import CLIP_SAMPLES
from gpuyard.workloads.task import Task

DIGITS = 10


def linear() -> Task:
    """Return four linear layers with 12,102,220 parameters."""
    return _task(
        nn.Sequential(
            nn.Linear(CLIP_SAMPLES, 1000),
            nn.ReLU(),
            nn.Linear(1000, 100),
            nn.ReLU(),
            nn.Linear(100, 10),
            nn.Sigmoid(),
            nn.Linear(10, DIGITS),
        )
    )


def conv() -> Task:
    """Return three convolutions over time and two linear layers with 376,200 parameters."""
    return _task(
        nn.Sequential(
            nn.Unflatten(1, (1, CLIP_SAMPLES)),
            *_convolution(1, 50, kernel=200, pool=4),
            *_convolution(50, 30, kernel=100, pool=3),
            *_convolution(30, 10, kernel=50, pool=5),
            nn.Flatten(),
            nn.Linear(2000, 100),
            nn.ReLU(),
            nn.Linear(100, DIGITS),
        )
    )


def _convolution(channels_in: int, channels_out: int, kernel: int, pool: int) -> list[nn.Module]:
    return [
        nn.Conv1d(channels_in, channels_out, kernel, padding=kernel // 2),
        nn.ReLU(),
        nn.MaxPool1d(pool),
    ]


def _task(model: nn.Module) -> Task:
    return Task(model, _batch, functional.cross_entropy, sample="clip of 1.5 s at 8 kHz")


def _batch(n: int) -> tuple[tuple[Tensor, ...], Tensor]:
    return (torch.rand(n, CLIP_SAMPLES) * 2 - 1,), torch.randint(DIGITS, (n,))
