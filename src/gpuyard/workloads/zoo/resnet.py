"""ResNet: He et al., "Deep residual learning for image recognition", 2015 (arXiv:1512.03385).

The bottleneck halves the image in its 3×3 convolution, as all later implementations do ("v1.5").
"""

from collections import OrderedDict
from typing import Literal

from torch import Tensor, nn

from gpuyard.workloads.task import Task
from gpuyard.workloads.zoo.images import IMAGENET_CLASSES, classify_images


def resnet18() -> Task:
    """11,689,512 parameters."""
    return classify_images(resnet("basic", (2, 2, 2, 2)))


def resnet18_cifar() -> Task:
    """11,173,962 parameters: for images of 32×32, whose stem neither strides nor pools."""
    small_stem = nn.Sequential(*convolution(3, 64, kernel=3), nn.ReLU())
    return classify_images(resnet("basic", (2, 2, 2, 2), small_stem, 10), size=32, classes=10)


def resnet50() -> Task:
    """25,557,032 parameters."""
    return classify_images(resnet("bottleneck", (3, 4, 6, 3)))


def resnet101() -> Task:
    """44,549,160 parameters."""
    return classify_images(resnet("bottleneck", (3, 4, 23, 3)))


def resnet152() -> Task:
    """60,192,808 parameters."""
    return classify_images(resnet("bottleneck", (3, 8, 36, 3)))


def resnet(
    block: Literal["basic", "bottleneck"],
    depths: tuple[int, ...],
    first: nn.Module | None = None,
    classes: int = IMAGENET_CLASSES,
) -> nn.Sequential:
    """Return the whole classifier; `depths` is the number of blocks in each stage."""
    channels_out = 64 * 2 ** (len(depths) - 1) * (4 if block == "bottleneck" else 1)
    return nn.Sequential(
        OrderedDict(
            [
                ("stem", first or stem()),
                *stages(block, depths).items(),
                ("pool", nn.AdaptiveAvgPool2d(1)),
                ("flatten", nn.Flatten()),
                ("classifier", nn.Linear(channels_out, classes)),
            ]
        )
    )


def stem() -> nn.Sequential:
    """Return conv1 and its pooling: a quarter of the image size in 64 channels."""
    return nn.Sequential(
        *convolution(3, 64, kernel=7, stride=2), nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1)
    )


def stages(
    block: Literal["basic", "bottleneck"],
    depths: tuple[int, ...],
    strides: tuple[int, ...] = (1, 2, 2, 2),
) -> OrderedDict[str, nn.Module]:
    """Return the stages from conv2_x on, named as in the paper."""
    named: OrderedDict[str, nn.Module] = OrderedDict()
    channels = 64
    for i, (depth, stride) in enumerate(zip(depths, strides, strict=False)):
        width = 64 * 2**i
        blocks = []
        for j in range(depth):
            blocks.append(Residual(block, channels, width, stride if j == 0 else 1))
            channels = blocks[-1].channels_out
        named[f"conv{i + 2}"] = nn.Sequential(*blocks)
    return named


class Residual(nn.Module):
    """A block whose output is added to its input, which is projected if the shapes differ."""

    def __init__(
        self, block: Literal["basic", "bottleneck"], channels_in: int, width: int, stride: int
    ) -> None:
        super().__init__()
        if block == "basic":
            self.channels_out = width
            self.residual = nn.Sequential(
                *convolution(channels_in, width, kernel=3, stride=stride),
                nn.ReLU(),
                *convolution(width, width, kernel=3),
            )
        else:
            self.channels_out = 4 * width
            self.residual = nn.Sequential(
                *convolution(channels_in, width, kernel=1),
                nn.ReLU(),
                *convolution(width, width, kernel=3, stride=stride),
                nn.ReLU(),
                *convolution(width, self.channels_out, kernel=1),
            )
        same_shape = channels_in == self.channels_out and stride == 1
        self.shortcut = (
            nn.Identity()
            if same_shape
            else nn.Sequential(*convolution(channels_in, self.channels_out, 1, stride))
        )
        self.activation = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        activated: Tensor = self.activation(self.residual(x) + self.shortcut(x))
        return activated


def convolution(
    channels_in: int, channels_out: int, kernel: int, stride: int = 1
) -> list[nn.Module]:
    """Return a convolution that keeps the image size except for its stride, and batch normalization."""
    conv = nn.Conv2d(
        channels_in, channels_out, kernel, stride=stride, padding=kernel // 2, bias=False
    )
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return [conv, nn.BatchNorm2d(channels_out)]
