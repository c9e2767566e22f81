"""A transformer small enough to be trained on CPUs: it predicts the next byte, as GPT-2 the next token.

Vaswani et al., "Attention is all you need", 2017 (arXiv:1706.03762), with GPT-2's order of layers.
"""

from gpuyard.workloads.task import Task
from gpuyard.workloads.zoo.gpt2 import Gpt2Config, predict_tokens

SMALL = Gpt2Config(depth=4, width=256, heads=4, vocabulary=256, tokens=128)


def transformer_small() -> Task:
    """3,257,856 parameters."""
    return predict_tokens(SMALL)
