"""AlexNet on one GPU: Krizhevsky, "One weird trick for parallelizing convolutional neural networks",
2014 (arXiv:1404.5997)."""

from torch import nn

from gpuyard.workloads.task import Task
from gpuyard.workloads.zoo.images import IMAGENET_CLASSES, classify_images


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
