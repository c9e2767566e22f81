"""Activations of small transformers: the formula against the tensors that torch saves for backward."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from gpuyard.predictor.large.layout import Layout, stack_layouts
from gpuyard.predictor.large.memory import MemoryConstants, StateBytes, compute_memory
from gpuyard.predictor.large.model import describe_model, stack_models
from gpuyard.specs.transformer import TransformerShape

SAMPLES, TOKENS = 2, 64
COUNTED = MemoryConstants(  # without anything that is fitted
    activation_factor=1.0, eager_activation_factor=1.0, selective_factor=1.0, logit_bytes=0.0,
    pytorch_logit_bytes=0.0, gathered_layers=0.0, framework_bytes=0.0, fragmentation=0.0,
)  # fmt: skip


class Block(nn.Module):
    """A layer as PyTorch code is usually written, with grouped heads and with or without a gate."""

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.shape, size = shape, shape.size_of_head
        kv = 2 * (shape.kv_heads or shape.heads) * size
        self.attention_norm, self.ffn_norm = nn.LayerNorm(shape.hidden), nn.LayerNorm(shape.hidden)
        self.queries = nn.Linear(shape.hidden, shape.heads * size, bias=False)
        self.keys_values = nn.Linear(shape.hidden, kv, bias=False)
        self.output = nn.Linear(shape.heads * size, shape.hidden, bias=False)
        self.up = nn.Linear(shape.hidden, shape.ffn, bias=False)
        self.gate = nn.Linear(shape.hidden, shape.ffn, bias=False) if shape.gated else None
        self.down = nn.Linear(shape.ffn, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        samples, length, _ = x.shape
        normed = self.attention_norm(x)
        queries = self.queries(normed).view(samples, length, self.shape.heads, -1).transpose(1, 2)
        pairs = self.keys_values(normed).view(
            samples, length, 2, self.shape.kv_heads or self.shape.heads, -1
        )
        keys, values = pairs.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(
            queries, keys, values, is_causal=True, enable_gqa=keys.shape[1] != queries.shape[1]
        )
        x = x + self.output(attended.transpose(1, 2).reshape(samples, length, -1))
        normed = self.ffn_norm(x)
        up = self.up(normed)
        inner = (
            functional.gelu(up) if self.gate is None else functional.silu(self.gate(normed)) * up
        )
        return x + self.down(inner)  # type: ignore[no-any-return]


def saved_bytes(shape: TransformerShape, layers: int, *, recompute: bool = False) -> int:
    """Return the bytes of all tensors that forward saves, each storage once, without weights."""
    blocks = nn.ModuleList([Block(shape) for _ in range(layers)]).to(torch.bfloat16)
    weights = {weight.untyped_storage().data_ptr() for weight in blocks.parameters()}
    storages: dict[int, Any] = {}

    def pack(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in weights:
            storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor.detach()

    x = torch.randn(SAMPLES, TOKENS, shape.hidden, dtype=torch.bfloat16, requires_grad=True)
    with saved_tensors_hooks(pack, lambda tensor: tensor):
        for block in blocks:
            x = checkpoint(block, x, use_reentrant=False) if recompute else block(x)
    assert x.requires_grad
    return sum(storage.nbytes() for storage in storages.values())


def predicted_bytes(shape: TransformerShape, layers: int, *, recompute: bool = False) -> float:
    sized = shape.model_copy(update={"layers": layers, "sequence": TOKENS})
    layout = Layout(
        micro_batch=SAMPLES, global_batch=SAMPLES, zero=0, family="pytorch",
        recompute="full" if recompute else "none",
    )  # fmt: skip
    memory = compute_memory(
        stack_models([describe_model(sized)]),
        stack_layouts([layout]),
        StateBytes(eager=1.0),
        COUNTED,
    )
    return float(memory.activations[0])


SHAPES = {
    "gpt": {"heads": 8, "ffn": 1024, "gated": False},
    "llama": {"heads": 8, "kv_heads": 2, "ffn": 896},
    "wide heads": {"heads": 4, "kv_heads": 4, "head_size": 96, "ffn": 512},
}


@pytest.mark.parametrize("name", SHAPES)
def test_formula_counts_what_torch_saves(name: str) -> None:
    shape = TransformerShape.model_validate(
        {"layers": 1, "hidden": 256, "vocabulary": 1000, **SHAPES[name]}
    )
    # the difference of two depths is what whole layers save, without both ends of the model
    measured = saved_bytes(shape, 6) - saved_bytes(shape, 2)
    predicted = predicted_bytes(shape, 6) - predicted_bytes(shape, 2)
    assert predicted == pytest.approx(measured, rel=0.03)


def test_full_recomputation_keeps_one_input_per_layer() -> None:
    shape = TransformerShape.model_validate(
        {"layers": 1, "hidden": 256, "vocabulary": 1000, **SHAPES["llama"]}
    )
    measured = saved_bytes(shape, 6, recompute=True) - saved_bytes(shape, 2, recompute=True)
    predicted = predicted_bytes(shape, 6, recompute=True) - predicted_bytes(
        shape, 2, recompute=True
    )
    assert predicted == pytest.approx(measured, rel=0.03)
