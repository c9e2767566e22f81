"""BERT: Devlin et al., "BERT: pre-training of deep bidirectional transformers for language
understanding", 2018 (arXiv:1810.04805), fine-tuned to find an answer's span in a text (SQuAD).

The encoder with its pooler has 109,482,240 (base) and 335,141,888 (large) parameters. The span
head reads every token and not the pooled one, so fine-tuning leaves out the pooler, which would
never get a gradient, and adds a linear layer of two outputs.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from gpuyard.workloads.task import Task
from gpuyard.workloads.zoo.transformer import TransformerBlock, initialize


@dataclass(frozen=True)
class BertConfig:
    """The sizes of one BERT."""

    depth: int
    width: int
    heads: int
    vocabulary: int = 30_522
    positions: int = 512
    dropout: float = 0.1


BASE = BertConfig(depth=12, width=768, heads=12)
LARGE = BertConfig(depth=24, width=1024, heads=16)
SQUAD_TOKENS = 384


def bert_base() -> Task:
    """108,893,186 parameters: base without the pooler, with the span head."""
    return find_spans(BASE)


def bert_large() -> Task:
    """334,094,338 parameters: large without the pooler, with the span head."""
    return find_spans(LARGE)


def find_spans(config: BertConfig, tokens: int = SQUAD_TOKENS) -> Task:
    """Return the task of finding the first and last token of an answer in a sequence."""

    def batch(n: int) -> tuple[tuple[Tensor, ...], Tensor]:
        words = torch.randint(config.vocabulary, (n, tokens))
        segments = torch.randint(2, (n, tokens))
        return (words, segments), torch.randint(tokens, (n, 2))

    return Task(
        SpanFinder(config), batch, functional.cross_entropy, sample=f"sequence of {tokens} tokens"
    )


class Bert(nn.Module):
    """The encoder; with a pooler, it returns the first token's summary, otherwise every token."""

    def __init__(self, config: BertConfig, pooler: bool = True) -> None:
        super().__init__()
        self.words = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.positions, config.width)
        self.segments = nn.Embedding(2, config.width)
        self.norm = nn.LayerNorm(config.width, eps=1e-12)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.Sequential(
            *(
                TransformerBlock(
                    config.width,
                    config.heads,
                    normalize="post",
                    dropout=config.dropout,
                    epsilon=1e-12,
                )
                for _ in range(config.depth)
            )
        )
        self.pooler = nn.Linear(config.width, config.width) if pooler else None
        self.apply(initialize)

    def forward(self, words: Tensor, segments: Tensor) -> Tensor:
        positions = torch.arange(words.shape[1], device=words.device)
        embedded = self.words(words) + self.positions(positions) + self.segments(segments)
        encoded: Tensor = self.blocks(self.dropout(self.norm(embedded)))
        if self.pooler is None:
            return encoded
        return torch.tanh(self.pooler(encoded[:, 0]))


class SpanFinder(nn.Module):
    """A model that scores every token as start and end of the answer: (samples, tokens, 2)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.encoder = Bert(config, pooler=False)
        self.span = nn.Linear(config.width, 2)
        initialize(self.span)

    def forward(self, words: Tensor, segments: Tensor) -> Tensor:
        logits: Tensor = self.span(self.encoder(words, segments))
        return logits
