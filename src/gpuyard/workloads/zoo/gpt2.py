"""GPT-2: Radford et al., "Language models are unsupervised multitask learners", 2019.

The output layer is the word embedding again, so its gradient is only ready at the very end of
backward. `transformer_small` is the same small enough for CPUs: it predicts the next byte.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from gpuyard.workloads.task import Task
from gpuyard.workloads.zoo.transformer import TransformerBlock, initialize


@dataclass(frozen=True)
class Gpt2Config:
    """The sizes of one GPT-2."""

    depth: int
    width: int
    heads: int
    vocabulary: int = 50_257
    tokens: int = 1024
    dropout: float = 0.1


SMALL = Gpt2Config(depth=12, width=768, heads=12)
MEDIUM = Gpt2Config(depth=24, width=1024, heads=16)
LARGE = Gpt2Config(depth=36, width=1280, heads=20)
XL = Gpt2Config(depth=48, width=1600, heads=25)
BYTES = Gpt2Config(depth=4, width=256, heads=4, vocabulary=256, tokens=128)
CONFIGS = {
    "transformer-small": BYTES, "gpt2": SMALL, "gpt2-medium": MEDIUM, "gpt2-large": LARGE, "gpt2-xl": XL,
}  # fmt: skip


def gpt2() -> Task:
    """124,439,808 parameters."""
    return predict_tokens(SMALL)


def gpt2_medium() -> Task:
    """354,823,168 parameters."""
    return predict_tokens(MEDIUM)


def gpt2_large() -> Task:
    """774,030,080 parameters."""
    return predict_tokens(LARGE)


def gpt2_xl() -> Task:
    """1,557,611,200 parameters."""
    return predict_tokens(XL)


def transformer_small() -> Task:
    """3,257,856 parameters."""
    return predict_tokens(BYTES)


def predict_tokens(config: Gpt2Config) -> Task:
    """Predict every next token of a sequence as long as the model allows."""

    def batch(n: int) -> tuple[tuple[Tensor, ...], Tensor]:
        tokens = torch.randint(config.vocabulary, (n, config.tokens + 1))
        return (tokens[:, :-1],), tokens[:, 1:]

    return Task(Gpt2(config), batch, _next_token_loss, sample=f"sequence of {config.tokens} tokens")


def _next_token_loss(logits: Tensor, tokens: Tensor) -> Tensor:
    return functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())


class Gpt2(nn.Module):
    """Tokens in, the logits of each next token out."""

    def __init__(self, config: Gpt2Config) -> None:
        super().__init__()
        self.words = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.tokens, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.Sequential(
            *(
                TransformerBlock(
                    config.width,
                    config.heads,
                    normalize="pre",
                    dropout=config.dropout,
                    causal=True,
                    gelu="tanh",
                )
                for _ in range(config.depth)
            )
        )
        self.norm = nn.LayerNorm(config.width)
        self.apply(initialize)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.score(self.blocks(self.embed(tokens)))

    def embed(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        embedded: Tensor = self.dropout(self.words(tokens) + self.positions(positions))
        return embedded

    def score(self, hidden: Tensor) -> Tensor:
        return functional.linear(self.norm(hidden), self.words.weight)
