"""Memory that a model keeps for backward: the count without a run against a real run."""

import importlib
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional

from gpuyard.catalog.models import models
from gpuyard.workloads.profiling import profile_task
from gpuyard.workloads.saved_tensors import LiveBytes, measure_autocast
from gpuyard.workloads.task import Task
from gpuyard.workloads.zoo import MODELS
from gpuyard.workloads.zoo.transformer import SelfAttention


def measure_saved_bytes(task: Task, samples: int, mixed: bool) -> int:
    """Return the bytes of all tensors that a forward pass on the CPU saves, each storage once."""
    parameters = {parameter.untyped_storage().data_ptr() for parameter in task.model.parameters()}
    storages: dict[int, Any] = {}

    def pack(tensor: Tensor) -> Tensor:
        address = tensor.untyped_storage().data_ptr()
        if address not in parameters:
            storages[address] = tensor.untyped_storage()
        return tensor.detach()  # with its graph, it would form a reference cycle

    inputs, target = task.batch(samples)
    with (
        saved_tensors_hooks(pack, lambda tensor: tensor),
        torch.autocast("cpu", dtype=torch.bfloat16, enabled=mixed),
    ):
        loss = task.loss(task.model(*inputs), target)
    assert loss.requires_grad
    return sum(storage.nbytes() for storage in storages.values())


@pytest.mark.parametrize(
    ("model", "mixed"),
    [
        pytest.param(model, mixed, id=f"{model}-{'bf16' if mixed else 'fp32'}", marks=marks)
        for model, in_fp32, in_bf16 in (
            ("resnet50", (), ()),
            ("bert-base", pytest.mark.soak, ()),
            ("vit-b-16", pytest.mark.soak, ()),
            ("gpt2", pytest.mark.soak, pytest.mark.soak),
            ("spoken-digits-conv", (), ()),
        )
        for mixed, marks in ((False, in_fp32), (True, in_bf16))
    ],
)
def test_the_catalog_matches_a_real_run(model: str, mixed: bool) -> None:
    module, factory = MODELS[model].split(":")
    task = getattr(importlib.import_module(module), factory)()
    task.model.train()
    for part in task.model.modules():
        if isinstance(part, SelfAttention):
            part.dropout = 0.0  # a CPU has no fused kernel with it
    expected = measure_saved_bytes(task, 2, mixed) - measure_saved_bytes(task, 1, mixed)
    profile = models().get(model)
    actual = profile.activation_bytes_autocast if mixed else profile.activation_bytes
    assert actual == pytest.approx(expected, rel=0.1)


class SmallModel(nn.Module):
    """A model with layers that autocast leaves in fp32, and others."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(8, 32)
        self.norm = nn.LayerNorm(32)
        self.out = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.out(self.norm(self.wide(x)))
        return output


def create_small_task() -> Task:
    def batch(n: int) -> tuple[tuple[Tensor, ...], Tensor]:
        return (torch.randn(n, 8),), torch.zeros(n, dtype=torch.int64)

    return Task(SmallModel(), batch, functional.cross_entropy, sample="vector of 8")


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_norms_and_the_loss_stay_in_fp32(device: str) -> None:
    with torch.device(device):
        profile = profile_task(create_small_task(), id="x", name="x")
    labels = 8
    # in fp32: the input, the norm's input with mean and deviation, its output, the log-softmax
    assert profile.activation_bytes == 4 * (8 + 32 + 2 + 32 + 4) + labels
    # 16-bit: the input and the norm's output, the inputs of linear layers
    assert profile.activation_bytes_autocast == 2 * 8 + 4 * (32 + 2) + 2 * 32 + 4 * 4 + labels
    assert profile.largest_activation_bytes == 4 * 32
    assert profile.largest_activation_bytes_autocast == 4 * 32


def test_counting_under_autocast_leaves_the_model_on_meta() -> None:
    with torch.device("meta"):
        task = create_small_task()
    before = list(task.model.parameters())
    assert measure_autocast(task, 2)
    after = list(task.model.parameters())
    assert all(old is new for old, new in zip(before, after, strict=True))
    assert not torch.is_autocast_enabled("cpu")


def create_language_task(vocabulary: int) -> Task:
    """Create a language model whose logits are by far the largest tensors."""

    def batch(n: int) -> tuple[tuple[Tensor, ...], Tensor]:
        return (torch.zeros(n, 16, dtype=torch.int64),), torch.zeros(n, 16, dtype=torch.int64)

    def loss(output: Tensor, target: Tensor) -> Tensor:
        return functional.cross_entropy(output.flatten(0, 1), target.flatten())

    model = nn.Sequential(nn.Embedding(vocabulary, 8), nn.Linear(8, 8), nn.Linear(8, vocabulary))
    return Task(model, batch, loss, sample="16 tokens")


def measure_peak_bytes(task: Task, samples: int, mixed: bool) -> int:
    """Return the peak memory of a step on the CPU, without parameters and their gradients."""
    for parameter in task.model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    inputs, target = task.batch(samples)
    with LiveBytes() as live:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=mixed):
            loss = task.loss(task.model(*inputs), target)
        torch.autograd.backward(loss)
    return int(live.peak)


@pytest.mark.parametrize("mixed", [False, True])
def test_both_gradients_of_the_logits_are_counted(mixed: bool) -> None:
    task = create_language_task(5000)
    expected = (measure_peak_bytes(task, 40, mixed) - measure_peak_bytes(task, 20, mixed)) / 20
    profile = profile_task(create_language_task(5000), id="words", name="words")
    assert profile.loss_gradient_bytes == pytest.approx(2 * 16 * 5000 * 4, rel=0.01)
    assert profile.sample_bytes(autocast=mixed) == pytest.approx(expected, rel=0.02)


@pytest.mark.soak
def test_gpt2_needs_the_memory_in_the_catalog() -> None:
    module, factory = MODELS["gpt2"].split(":")
    task = getattr(importlib.import_module(module), factory)()
    for part in task.model.modules():
        if isinstance(part, SelfAttention):
            part.dropout = 0.0  # a CPU has no fused kernel with it
    expected = measure_peak_bytes(task, 2, mixed=False) - measure_peak_bytes(task, 1, mixed=False)
    assert models().get("gpt2").sample_bytes(autocast=False) == pytest.approx(expected, rel=0.02)
