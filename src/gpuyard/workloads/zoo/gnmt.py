"""GNMT: Wu et al., "Google's neural machine translation system", 2016 (arXiv:1609.08144), in the
smaller form that MLPerf training and NVIDIA benchmark ("GNMT v2").

Four LSTM layers each in encoder and decoder (the encoder's first in both directions), residual
connections from the third on, and the first decoder layer's normalized additive attention fed to
all later decoder layers. Both languages share one embedding.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from gpuyard.workloads.task import Task

WIDTH = 1024
VOCABULARY = 32_320  # 32,317 byte pairs of the WMT16 English-German texts, padded to eights
TOKENS = 30


def gnmt() -> Task:
    """160,671,297 parameters."""
    return translate(VOCABULARY, WIDTH, TOKENS)


def translate(vocabulary: int, width: int, tokens: int) -> Task:
    """Translate sentences with the right translation so far as input."""

    def batch(n: int) -> tuple[tuple[Tensor, ...], Tensor]:
        source = torch.randint(vocabulary, (n, tokens))
        translation = torch.randint(vocabulary, (n, tokens + 1))
        return (source, translation[:, :-1]), translation[:, 1:]

    sample = f"sentence pair of {tokens} + {tokens} tokens"
    return Task(Gnmt(vocabulary, width), batch, _smoothed_loss, sample)


def _smoothed_loss(logits: Tensor, tokens: Tensor) -> Tensor:
    return functional.cross_entropy(logits.flatten(0, 1), tokens.flatten(), label_smoothing=0.1)


class Gnmt(nn.Module):
    """Source and translation so far in, the logits of each next word out."""

    def __init__(self, vocabulary: int, width: int, dropout: float = 0.2) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.dropout = nn.Dropout(dropout)
        self.encoder = nn.ModuleList(
            [
                nn.LSTM(width, width, batch_first=True, bidirectional=True),
                nn.LSTM(2 * width, width, batch_first=True),
                nn.LSTM(width, width, batch_first=True),
                nn.LSTM(width, width, batch_first=True),
            ]
        )
        self.attention = AdditiveAttention(width)
        self.decoder = nn.ModuleList(
            nn.LSTM(inputs, width, batch_first=True) for inputs in (width, *3 * (2 * width,))
        )
        self.classifier = nn.Linear(width, vocabulary)

    def forward(self, source: Tensor, translation: Tensor) -> Tensor:
        encoded = self._encode(self.words(source))
        decoded = self._decode(self.words(translation), encoded)
        logits: Tensor = self.classifier(decoded)
        return logits

    def _encode(self, x: Tensor) -> Tensor:
        for i, lstm in enumerate(self.encoder):
            y, _ = lstm(self.dropout(x))
            x = y if i < 2 else x + y
        return x

    def _decode(self, x: Tensor, encoded: Tensor) -> Tensor:
        first, *later = self.decoder
        x, _ = first(self.dropout(x))
        context = self.attention(x, encoded)
        for i, lstm in enumerate(later):
            y, _ = lstm(torch.cat([self.dropout(x), context], dim=-1))
            x = y if i < 1 else x + y
        return x


class AdditiveAttention(nn.Module):
    """Bahdanau et al., 2014 (arXiv:1409.0473), with the score's vector normalized and scaled."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.bias = nn.Parameter(torch.zeros(width))
        self.scale = nn.Parameter(torch.full((1,), 1 / math.sqrt(width)))
        self.score = nn.Parameter(torch.rand(1, width) * 0.2 - 0.1)

    def forward(self, query: Tensor, memory: Tensor) -> Tensor:
        pairs = self.query(query)[:, :, None] + self.key(memory)[:, None] + self.bias
        direction = self.score / self.score.norm() * self.scale
        weights = functional.linear(torch.tanh(pairs), direction).squeeze(-1).softmax(dim=-1)
        return weights @ memory
