"""What the image classifiers share: synthetic ImageNet batches."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from gpuyard.workloads.task import Task

IMAGENET_CLASSES = 1000


def classify_images(
    model: nn.Module,
    size: int = 224,
    loss: Callable[[Any, Tensor], Tensor] = functional.cross_entropy,
    classes: int = IMAGENET_CLASSES,
) -> Task:
    """The task of telling apart square colour images with the given model."""

    def batch(n: int) -> tuple[tuple[Tensor, ...], Tensor]:
        return (torch.randn(n, 3, size, size),), torch.randint(classes, (n,))

    return Task(model, batch, loss, sample=f"image 3×{size}×{size}")
