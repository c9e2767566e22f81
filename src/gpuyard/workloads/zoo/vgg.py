"""VGG: Simonyan and Zisserman, "Very deep convolutional networks for large-scale image
recognition", 2014 (arXiv:1409.1556), configuration D."""

from torch import nn

from gpuyard.workloads.task import Task
from gpuyard.workloads.zoo.images import IMAGENET_CLASSES, classify_images

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
