"""Inception-v3: Szegedy et al., "Rethinking the inception architecture for computer vision", 2015
(arXiv:1512.00567), with the auxiliary classifier that serves only during training."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from gpuyard.workloads.task import Task
from gpuyard.workloads.zoo.images import IMAGENET_CLASSES, classify_images

AUXILIARY_WEIGHT = 0.4


def inception_v3() -> Task:
    """27,161,264 parameters, 3,326,696 of them in the auxiliary classifier."""
    return classify_images(InceptionV3(), size=299, loss=_loss)


def _loss(logits: tuple[Tensor, Tensor], target: Tensor) -> Tensor:
    main, auxiliary = logits
    return functional.cross_entropy(main, target) + AUXILIARY_WEIGHT * functional.cross_entropy(
        auxiliary, target
    )


class InceptionV3(nn.Module):
    """Returns the logits of the main and of the auxiliary classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            _conv(3, 32, 3, stride=2),
            _conv(32, 32, 3),
            _conv(32, 64, 3, padding=1),
            nn.MaxPool2d(3, stride=2),
            _conv(64, 80, 1),
            _conv(80, 192, 3),
            nn.MaxPool2d(3, stride=2),
        )
        self.body = nn.Sequential(
            _grid_35(192, pooled=32),
            _grid_35(256, pooled=64),
            _grid_35(288, pooled=64),
            _shrink_to_17(288),
            _grid_17(128),
            _grid_17(160),
            _grid_17(160),
            _grid_17(192),
        )
        self.auxiliary = nn.Sequential(
            nn.AvgPool2d(5, stride=3),
            _conv(768, 128, 1),
            _conv(128, 768, 5),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(768, IMAGENET_CLASSES),
        )
        self.head = nn.Sequential(
            _shrink_to_8(768),
            _grid_8(1280),
            _grid_8(2048),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Dropout(0.2),
            nn.Linear(2048, IMAGENET_CLASSES),
        )

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        features = self.body(self.stem(images))
        return self.head(features), self.auxiliary(features)


class _Branches(nn.Module):
    """Parallel modules on one input, with concatenated channels."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], dim=1)


def _grid_35(channels: int, pooled: int) -> nn.Module:
    return _Branches(
        _conv(channels, 64, 1),
        nn.Sequential(_conv(channels, 48, 1), _conv(48, 64, 5, padding=2)),
        nn.Sequential(
            _conv(channels, 64, 1), _conv(64, 96, 3, padding=1), _conv(96, 96, 3, padding=1)
        ),
        nn.Sequential(_average(), _conv(channels, pooled, 1)),
    )


def _shrink_to_17(channels: int) -> nn.Module:
    return _Branches(
        _conv(channels, 384, 3, stride=2),
        nn.Sequential(
            _conv(channels, 64, 1), _conv(64, 96, 3, padding=1), _conv(96, 96, 3, stride=2)
        ),
        nn.MaxPool2d(3, stride=2),
    )


def _grid_17(width: int) -> nn.Module:
    return _Branches(
        _conv(768, 192, 1),
        nn.Sequential(_conv(768, width, 1), _row(width, width, 7), _column(width, 192, 7)),
        nn.Sequential(
            _conv(768, width, 1),
            _column(width, width, 7),
            _row(width, width, 7),
            _column(width, width, 7),
            _row(width, 192, 7),
        ),
        nn.Sequential(_average(), _conv(768, 192, 1)),
    )


def _shrink_to_8(channels: int) -> nn.Module:
    return _Branches(
        nn.Sequential(_conv(channels, 192, 1), _conv(192, 320, 3, stride=2)),
        nn.Sequential(
            _conv(channels, 192, 1),
            _row(192, 192, 7),
            _column(192, 192, 7),
            _conv(192, 192, 3, stride=2),
        ),
        nn.MaxPool2d(3, stride=2),
    )


def _grid_8(channels: int) -> nn.Module:
    return _Branches(
        _conv(channels, 320, 1),
        nn.Sequential(_conv(channels, 384, 1), _Branches(_row(384, 384, 3), _column(384, 384, 3))),
        nn.Sequential(
            _conv(channels, 448, 1),
            _conv(448, 384, 3, padding=1),
            _Branches(_row(384, 384, 3), _column(384, 384, 3)),
        ),
        nn.Sequential(_average(), _conv(channels, 192, 1)),
    )


def _average() -> nn.Module:
    return nn.AvgPool2d(3, stride=1, padding=1)


def _row(channels_in: int, channels_out: int, length: int) -> nn.Module:
    return _conv(channels_in, channels_out, (1, length), padding=(0, length // 2))


def _column(channels_in: int, channels_out: int, length: int) -> nn.Module:
    return _conv(channels_in, channels_out, (length, 1), padding=(length // 2, 0))


def _conv(
    channels_in: int,
    channels_out: int,
    kernel: int | tuple[int, int],
    stride: int = 1,
    padding: int | tuple[int, int] = 0,
) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, kernel, stride=stride, padding=padding, bias=False),
        nn.BatchNorm2d(channels_out, eps=0.001),
        nn.ReLU(),
    )
