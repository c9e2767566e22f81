"""Vision transformer: Dosovitskiy et al., "An image is worth 16×16 words", 2020 (arXiv:2010.11929)."""

import torch
from torch import Tensor, nn

from gpuyard.workloads.task import Task
from gpuyard.workloads.zoo.images import IMAGENET_CLASSES, classify_images
from gpuyard.workloads.zoo.transformer import TransformerBlock, initialize


def vit_b_16() -> Task:
    """86,567,656 parameters."""
    return classify_images(VisionTransformer(depth=12, width=768, heads=12))


def vit_l_16() -> Task:
    """304,326,632 parameters."""
    return classify_images(VisionTransformer(depth=24, width=1024, heads=16))


class VisionTransformer(nn.Module):
    """A transformer on square patches as tokens, with one more token for the class."""

    def __init__(
        self,
        depth: int,
        width: int,
        heads: int,
        *,
        size: int = 224,
        patch: int = 16,
        classes: int = IMAGENET_CLASSES,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width) * 0.02)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(
            *(
                TransformerBlock(width, heads, normalize="pre", dropout=dropout, epsilon=1e-6)
                for _ in range(depth)
            )
        )
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.classifier = nn.Linear(width, classes)
        self.apply(initialize)

    def forward(self, images: Tensor) -> Tensor:
        words = self.patches(images).flatten(2).transpose(1, 2)
        class_token = self.class_token.expand(len(images), -1, -1)
        embedded = self.dropout(torch.cat([class_token, words], dim=1) + self.positions)
        logits: Tensor = self.classifier(self.norm(self.blocks(embedded)[:, 0]))
        return logits
