"""Image classifiers: their shared task, and the two that are a plain sequence of layers.

AlexNet on one GPU: Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014
(arXiv:1404.5997). VGG: Simonyan and Zisserman, "Very deep convolutional networks for large-scale image
recognition", 2014 (arXiv:1409.1556), configuration D.
"""

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
    """Return the task of classifying square color images with this model."""

    def batch(n: int) -> tuple[tuple[Tensor, ...], Tensor]:
        return (torch.randn(n, 3, size, size),), torch.randint(classes, (n,))

    return Task(model, batch, loss, sample=f"image 3×{size}×{size}")


def alexnet() -> Task:
    """61,100,840 parameters, nearly all of them in three linear layers."""
    model = nn.Sequential(
        nn.Conv2d(3, 64, 11, stride=4, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2),
        nn.Conv2d(64, 192, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2),
        nn.Conv2d(192, 384, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(384, 256, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(256, 256, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2),
        nn.Flatten(),
        nn.Dropout(),
        nn.Linear(256 * 6 * 6, 4096),
        nn.ReLU(),
        nn.Dropout(),
        nn.Linear(4096, 4096),
        nn.ReLU(),
        nn.Linear(4096, IMAGENET_CLASSES),
    )
    return classify_images(model)


CONFIGURATION_D = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))


def vgg16() -> Task:
    """138,357,544 parameters."""
    layers: list[nn.Module] = []
    channels = 3
    for width, depth in CONFIGURATION_D:
        for _ in range(depth):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
            channels = width
        layers.append(nn.MaxPool2d(2))
    layers += [nn.Flatten()]
    layers += [nn.Linear(512 * 7 * 7, 4096), nn.ReLU(), nn.Dropout()]
    layers += [nn.Linear(4096, 4096), nn.ReLU(), nn.Dropout()]
    layers += [nn.Linear(4096, IMAGENET_CLASSES)]
    return classify_images(nn.Sequential(*layers))
