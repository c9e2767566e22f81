"""The profiler's results against values calculated by hand."""

import importlib.util
import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from gpuyard.catalog.models import ModelProfile
from gpuyard.errors import MissingRequirement, UserMistake
from gpuyard.specs import Workload
from gpuyard.workloads import spoken_digits
from gpuyard.workloads.profiles import profile_model
from gpuyard.workloads.profiling import _MISSING_FLOPS, profile_task
from gpuyard.workloads.task import Task
from gpuyard.workloads.zoo import MODELS, gpt2

LINEAR_FLOPS = 2 * (12_000 * 1000 + 1000 * 100 + 100 * 10 + 10 * 10)
# every output of a convolution needs one multiply-add for each input channel and kernel position.
CONV_FLOPS = 2 * (
    50 * 12_001 * 1 * 200 + 30 * 3_001 * 50 * 100 + 10 * 1_001 * 30 * 50 + 2000 * 100 + 100 * 10
)


def profile(model: str) -> ModelProfile:
    module, factory = MODELS[model].split(":")
    with torch.device("meta"):
        task = getattr(importlib.import_module(module), factory)()
    return profile_task(task, id=model, name=model)


def create_regression(model: nn.Module, *shape: int) -> Task:
    """Create a task that trains the mean of all outputs toward zero."""

    def batch(n: int) -> tuple[tuple[Tensor, ...], Tensor]:
        return (torch.randn(n, *shape),), torch.zeros(())

    def loss(output: Tensor, target: Tensor) -> Tensor:
        return functional.mse_loss(output.mean(), target)

    return Task(model, batch, loss, sample=f"vector {shape}")


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_flops_of_linear_layers(device: str) -> None:
    with torch.device(device):
        task = spoken_digits.linear()
    measured = profile_task(task, id="x", name="x")
    assert measured.forward_flops == LINEAR_FLOPS
    assert [layer.forward_flops for layer in measured.layers] == [200, 2000, 200_000, 24_000_000]


def test_flops_of_convolutions() -> None:
    assert profile("spoken-digits-conv").forward_flops == CONV_FLOPS


@pytest.mark.parametrize(
    ("model", "giga_multiply_adds"),
    [
        ("alexnet", 0.714),
        ("vgg16", 15.47),
        ("resnet18", 1.814),
        ("resnet50", 4.089),
        ("vit-b-16", 17.56),
    ],
)
def test_flops_of_image_models_match_published_values(
    model: str, giga_multiply_adds: float
) -> None:
    assert profile(model).forward_flops / 2e9 == pytest.approx(giga_multiply_adds, rel=0.001)


def test_flops_of_bert_follow_the_formula() -> None:
    depth, width, tokens = 12, 768, 384
    projections_and_feed_forward = 2 * tokens * 12 * width**2
    attention = 2 * 2 * tokens**2 * width
    head = 2 * tokens * width * 2
    assert (
        profile("bert-base").forward_flops
        == depth * (projections_and_feed_forward + attention) + head
    )


def test_flops_of_gnmt_follow_the_formula() -> None:
    width, tokens, vocabulary = 1024, 30, 32_320
    recurrent = (
        4 * width * (2 * (2 * width) + 3 * width + 2 * 2 * width + 2 * width + 3 * 3 * width)
    )
    attention = 2 * width**2 + 2 * tokens * width
    assert profile("gnmt").forward_flops == 2 * tokens * (
        recurrent + attention + width * vocabulary
    )


@pytest.mark.parametrize("recurrent", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_have_the_same_flops_on_every_device(
    recurrent: type[nn.LSTM | nn.GRU | nn.RNN],
) -> None:
    class LastState(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = recurrent(8, 16, num_layers=2, bidirectional=True, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            states: Tensor = self.layers(x)[0]
            return states

    gates = {nn.LSTM: 4, nn.GRU: 3, nn.RNN: 1}[recurrent]
    expected = 2 * 5 * 2 * gates * 16 * ((8 + 16) + (32 + 16))
    for device in ("meta", "cpu"):
        with torch.device(device):
            task = create_regression(LastState(), 5, 8)
        assert profile_task(task, id="x", name="x").forward_flops == expected, device


def test_cudnn_lstm_formula_agrees_with_the_sum_over_its_weights() -> None:
    formula = _MISSING_FLOPS[torch.ops.aten._cudnn_rnn]
    weights = [[64, 8], [64, 16], [64], [64]]
    assert formula([5, 3, 8], weights, 4, None) == 2 * 5 * 3 * (64 * 8 + 64 * 16)


class Attention(nn.Module):
    """One projection and grouped self-attention."""

    def __init__(self, masked: bool) -> None:
        super().__init__()
        self.projection = nn.Linear(64, 128)
        self.masked = masked

    def forward(self, x: Tensor) -> Tensor:
        query = self.projection(x).unflatten(-1, (4, 32)).transpose(1, 2)
        key = query[:, :2]
        mask = torch.ones(len(x), 1, 16, 16, dtype=torch.bool) if self.masked else None
        return functional.scaled_dot_product_attention(
            query=query, key=key, value=key, attn_mask=mask, enable_gqa=True
        )


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_attention_is_counted_on_every_device(device: str, masked: bool) -> None:
    with torch.device(device):
        task = create_regression(Attention(masked), 16, 64)
    measured = profile_task(task, id="x", name="x")
    assert measured.forward_flops == 2 * 16 * 64 * 128 + 2 * 2 * 4 * 16 * 16 * 32


def test_attention_does_not_save_every_pair_of_tokens() -> None:
    def activation_bytes(tokens: int) -> int:
        config = gpt2.Gpt2Config(depth=1, width=32, heads=2, vocabulary=64, tokens=tokens)
        with torch.device("meta"):
            task = gpt2.predict_tokens(config)
        return profile_task(task, id="x", name="x").activation_bytes

    assert activation_bytes(512) == pytest.approx(2 * activation_bytes(256), rel=0.001)


@pytest.mark.parametrize("model", ["resnet18", "inception-v3", "gpt2-xl", "spoken-digits-linear"])
def test_every_parameter_has_a_gradient_and_every_flop_a_layer(model: str) -> None:
    measured = profile(model)
    assert measured.gradient_bytes == 4 * measured.parameters
    assert sum(layer.forward_flops for layer in measured.layers) == measured.forward_flops


def test_gradients_of_the_last_layer_come_first() -> None:
    names = [layer.name for layer in profile("resnet18").layers]
    assert names[0] == "classifier"
    assert names[-1] == "stem.0"
    stages = [name.partition(".")[0] for name in names]
    assert list(dict.fromkeys(stages)) == ["classifier", "conv5", "conv4", "conv3", "conv2", "stem"]


def test_a_tied_embedding_is_ready_only_at_the_end() -> None:
    layers = profile("gpt2").layers
    assert layers[0].name == "norm"
    assert (
        layers[0].forward_flops == 2 * 1024 * 768 * 50_257
    )  # of the output layer, which is done by then
    assert {layer.name for layer in layers[-2:]} == {"words", "positions"}


class Tied(nn.Module):
    """Two modules that share one weight, as in some language models."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8, bias=False)
        self.middle = nn.Linear(8, 8, bias=False)
        self.last = nn.Linear(8, 8, bias=False)
        self.last.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.last(self.middle(self.first(x)))
        return output


def test_tied_modules_are_one_layer() -> None:
    measured = profile_task(create_regression(Tied(), 8), id="x", name="x")
    assert measured.parameters == 128
    assert [(layer.name, layer.parameters) for layer in measured.layers] == [
        ("middle", 64),
        ("first", 64),
    ]
    assert measured.forward_flops == sum(layer.forward_flops for layer in measured.layers)


def test_frozen_layers_send_no_gradients() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))
    model[0].requires_grad_(False)
    measured = profile_task(create_regression(model, 8), id="x", name="x")
    assert measured.parameters == 8 * 9 + 4 * 9
    assert [layer.name for layer in measured.layers] == ["1"]
    assert measured.gradient_bytes == 4 * 4 * 9
    assert measured.forward_flops == 2 * (64 + 32)
    model.requires_grad_(False)
    with pytest.raises(UserMistake, match="dense has no parameters to train"):
        profile_task(create_regression(model, 8), id="dense", name="dense")


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_activation_bytes_by_hand(device: str) -> None:
    with torch.device(device):
        task = create_regression(
            nn.Sequential(nn.Linear(100, 50), nn.ReLU(), nn.Linear(50, 10)), 100
        )
    measured = profile_task(task, id="x", name="x")
    # the first layer keeps its input; ReLU keeps its output, which is also the last layer's input
    assert measured.activation_bytes == 4 * (100 + 50)
    assert measured.input_bytes == 4 * 100


def test_batch_normalization_statistics_do_not_grow_with_samples() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8))
    measured = profile_task(create_regression(model, 3, 10, 10), id="x", name="x")
    assert measured.activation_bytes == 4 * (3 * 10 * 10 + 8 * 8 * 8)


def test_profiling_does_not_change_the_task() -> None:
    task = create_regression(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout()), 8)
    task.model.eval()
    weight = task.model.get_parameter("0.weight")
    weight.grad = torch.full_like(weight, math.pi)
    before = {name: value.clone() for name, value in task.model.state_dict().items()}
    rng_state = torch.get_rng_state()
    profile_task(task, id="x", name="x")
    assert not any(module.training for module in task.model.modules())
    assert weight.grad is not None
    assert torch.equal(weight.grad, torch.full_like(weight, math.pi))
    assert task.model.get_parameter("0.bias").grad is None
    assert torch.equal(rng_state, torch.get_rng_state())
    for name, value in task.model.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_a_model_of_the_user_without_pytorch_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: None)
    with pytest.raises(MissingRequirement, match=r"profiling mine:build .*'gpuyard\[train\]'"):
        profile_model(Workload(name="mine", model="mine:build"))
