"""Shared parts of the transformers: Vaswani et al., "Attention is all you need", 2017 (arXiv:1706.03762)."""

from typing import Literal

from torch import Tensor, nn
from torch.nn import functional


class SelfAttention(nn.Module):
    """Multi-head attention of a sequence to itself; `causal` hides later tokens."""

    def __init__(self, width: int, heads: int, dropout: float, causal: bool = False) -> None:
        super().__init__()
        self.head_size, self.dropout, self.causal = width // heads, dropout, causal
        self.query_key_value = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        samples, length, _ = x.shape
        # a tensor-parallel rank has only some of the heads
        by_head = self.query_key_value(x).view(samples, length, 3, -1, self.head_size)
        query, key, value = by_head.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(
            query,
            key,
            value,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=self.causal,
        )
        projected: Tensor = self.output(attended.transpose(1, 2).reshape(samples, length, -1))
        return projected


class TransformerBlock(nn.Module):
    """Attention and feed-forward, each added to its input.

    The normalization stands after the addition as in the original and BERT ("post"), or before
    each part as in GPT-2 and ViT ("pre").
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        normalize: Literal["pre", "post"],
        dropout: float,
        causal: bool = False,
        epsilon: float = 1e-5,
        gelu: Literal["none", "tanh"] = "none",
    ) -> None:
        super().__init__()
        self.normalize = normalize
        self.attention = SelfAttention(width, heads, dropout, causal)
        self.attention_norm = nn.LayerNorm(width, eps=epsilon)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate=gelu), nn.Linear(4 * width, width)
        )
        self.feed_forward_norm = nn.LayerNorm(width, eps=epsilon)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        if self.normalize == "pre":
            x = x + self.dropout(self.attention(self.attention_norm(x)))
            x = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        else:
            x = self.attention_norm(x + self.dropout(self.attention(x)))
            x = self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
        return x


def initialize(module: nn.Module) -> None:
    """Draw weights with a standard deviation of 0.02 and set biases to zero, as in BERT, GPT-2, and ViT."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
