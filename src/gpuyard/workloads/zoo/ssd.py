"""SSD: Liu et al., "SSD: single shot multibox detector", 2015 (arXiv:1512.02325), on 300×300
images with ResNet-50 up to conv4 as its backbone, the form that MLPerf training and NVIDIA benchmark.

conv4 keeps its input's size, so that detection starts on a grid of 38×38; five more pairs of
convolutions shrink it to 1×1. All six grids together give 8,732 boxes.
"""

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn import functional

from gpuyard.workloads.task import Task
from gpuyard.workloads.zoo.resnet import convolution, stages, stem

CLASSES = 81  # the 80 classes of COCO, and the background
BOXES = 8732
BOXES_PER_CELL = (4, 6, 6, 6, 4, 4)
GRID_CHANNELS = (1024, 512, 512, 256, 256, 256)
NEGATIVES_PER_POSITIVE = 3


def ssd300() -> Task:
    """Detect boxes and classes in an image; the target has 4 offsets and a class per box."""
    return Task(Ssd300(), _batch, multibox_loss, sample="image 3×300×300")


def _batch(n: int) -> tuple[tuple[Tensor, ...], Tensor]:
    # About one box in a hundred matches an object, as in COCO.
    classes = torch.randint(1, CLASSES, (n, BOXES)) * (torch.rand(n, BOXES) < 0.01)
    offsets = torch.randn(n, BOXES, 4)
    target = torch.cat([offsets, classes[..., None].to(offsets.dtype)], dim=-1)
    return (torch.randn(n, 3, 300, 300),), target


def multibox_loss(predicted: tuple[Tensor, Tensor], target: Tensor) -> Tensor:
    """Compute equation 1 of the paper, with the three hardest negatives per positive (section 2.2)."""
    offsets, logits = predicted
    classes = target[..., 4].long()
    positive = classes > 0
    by_class = functional.cross_entropy(logits.transpose(1, 2), classes, reduction="none")
    hardness = by_class.detach().masked_fill(positive, 0)
    rank = hardness.argsort(dim=1, descending=True).argsort(dim=1)
    negative = rank < NEGATIVES_PER_POSITIVE * positive.sum(dim=1, keepdim=True)
    by_offset = functional.smooth_l1_loss(offsets, target[..., :4], reduction="none").sum(dim=-1)
    total = (by_offset * positive).sum() + (by_class * (positive | negative)).sum()
    return total / positive.sum().clamp(min=1)


class Ssd300(nn.Module):
    """Images in; offsets (samples, boxes, 4) and logits (samples, boxes, classes) out."""

    def __init__(self) -> None:
        super().__init__()
        backbone = stages("bottleneck", (3, 4, 6), strides=(1, 2, 1))
        self.backbone = nn.Sequential(OrderedDict([("stem", stem()), *backbone.items()]))
        self.shrink = nn.ModuleList(
            [
                _shrink(1024, 256, 512, stride=2, padding=1),
                _shrink(512, 256, 512, stride=2, padding=1),
                _shrink(512, 128, 256, stride=2, padding=1),
                _shrink(256, 128, 256, stride=1, padding=0),
                _shrink(256, 128, 256, stride=1, padding=0),
            ]
        )
        self.offsets = _heads(4)
        self.classes = _heads(CLASSES)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        grids = [self.backbone(images)]
        for shrink in self.shrink:
            grids.append(shrink(grids[-1]))
        return _read(self.offsets, grids, 4), _read(self.classes, grids, CLASSES)


def _shrink(
    channels_in: int, width: int, channels_out: int, stride: int, padding: int
) -> nn.Sequential:
    return nn.Sequential(
        *convolution(channels_in, width, kernel=1),
        nn.ReLU(),
        nn.Conv2d(width, channels_out, 3, stride=stride, padding=padding, bias=False),
        nn.BatchNorm2d(channels_out),
        nn.ReLU(),
    )


def _heads(outputs: int) -> nn.ModuleList:
    return nn.ModuleList(
        nn.Conv2d(channels, boxes * outputs, 3, padding=1)
        for channels, boxes in zip(GRID_CHANNELS, BOXES_PER_CELL, strict=True)
    )


def _read(heads: nn.ModuleList, grids: list[Tensor], outputs: int) -> Tensor:
    """Apply every head to its grid and return one row per box."""
    by_grid = [
        head(grid).permute(0, 2, 3, 1).reshape(len(grid), -1, outputs)
        for head, grid in zip(heads, grids, strict=True)
    ]
    return torch.cat(by_grid, dim=1)
