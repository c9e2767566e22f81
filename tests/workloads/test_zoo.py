"""The built-in models have exactly the published number of parameters, and they learn."""

import importlib
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import nn

from gpuyard.workloads import spoken_digits
from gpuyard.workloads.task import Task
from gpuyard.workloads.zoo import MODELS, bert, gnmt, gpt2, images, inception, resnet, ssd, vit
from gpuyard.workloads.zoo.images import classify_images

PUBLISHED_PARAMETERS = {
    "alexnet": 61_100_840,
    "vgg16": 138_357_544,
    "resnet18": 11_689_512,
    "resnet18-cifar": 11_173_962,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "inception-v3": 27_161_264,
    # the published encoder, minus the pooler (width² + width), plus the span head (2·width + 2)
    "bert-base": 109_482_240 - 768 * 769 + 2 * 769,
    "bert-large": 335_141_888 - 1024 * 1025 + 2 * 1025,
    "gnmt": 160_671_297,
    "ssd": 22_894_902,
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "vit-b-16": 86_567_656,
    "vit-l-16": 304_326_632,
    # words and positions, 4 × (attention, feed-forward, two norms), the last norm
    "transformer-small": (256 + 128) * 256
    + 4 * (257 * 768 + 257 * 256 + 257 * 1024 + 1025 * 256 + 4 * 256)
    + 2 * 256,
    "spoken-digits-linear": 12_102_220,
    "spoken-digits-conv": 376_200,
}


def count_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_every_model_has_a_published_size() -> None:
    assert set(PUBLISHED_PARAMETERS) == set(MODELS)


@pytest.mark.parametrize("model", MODELS)
def test_parameters_match_published_counts(model: str) -> None:
    module, factory = MODELS[model].split(":")
    with torch.device("meta"):
        task: Task = getattr(importlib.import_module(module), factory)()
    assert count_parameters(task.model) == PUBLISHED_PARAMETERS[model]


@pytest.mark.parametrize(
    ("config", "parameters"), [(bert.BASE, 109_482_240), (bert.LARGE, 335_141_888)]
)
def test_bert_with_its_pooler_is_the_published_encoder(
    config: bert.BertConfig, parameters: int
) -> None:
    with torch.device("meta"):
        encoder = bert.Bert(config)
        pooled = encoder(torch.zeros(2, 8, dtype=torch.int64), torch.zeros(2, 8, dtype=torch.int64))
    assert count_parameters(encoder) == parameters
    assert pooled.shape == (2, config.width)


def test_spoken_digit_convolution_has_the_founding_shapes() -> None:
    task = spoken_digits.conv()
    shapes: list[list[int]] = []
    for layer in task.model.modules():
        if isinstance(layer, nn.Conv1d | nn.MaxPool1d | nn.Linear):
            layer.register_forward_hook(lambda _m, _i, out: shapes.append(list(out.shape[1:])))
    task.model(*task.batch(2)[0])
    assert shapes == [
        [50, 12001],
        [50, 3000],
        [30, 3001],
        [30, 1000],
        [10, 1001],
        [10, 200],
        [100],
        [10],
    ]


def test_both_spoken_digit_models_accept_the_same_clips() -> None:
    linear, conv = spoken_digits.linear(), spoken_digits.conv()
    (clips,), digits = linear.batch(3)
    assert clips.shape == (3, 12_000)
    assert clips.abs().max() <= 1
    assert conv.model(clips).shape == linear.model(clips).shape == (3, 10)
    assert digits.shape == (3,)


def tiny_gpt2() -> Task:
    return gpt2.predict_tokens(
        gpt2.Gpt2Config(depth=2, width=32, heads=2, vocabulary=50, tokens=16, dropout=0)
    )


def tiny_bert() -> Task:
    config = bert.BertConfig(depth=2, width=32, heads=2, vocabulary=50, positions=16, dropout=0)
    return bert.find_spans(config, tokens=16)


def tiny_vit() -> Task:
    return classify_images(
        vit.VisionTransformer(2, 32, 2, size=32, patch=8, classes=10), size=32, classes=10
    )


def resnet18_on_small_images() -> Task:
    return classify_images(resnet.resnet("basic", (2, 2, 2, 2)), size=64)


def tiny_gnmt() -> Task:
    return gnmt.translate(vocabulary=50, width=16, tokens=7)


@pytest.mark.parametrize(
    "factory",
    [
        spoken_digits.linear,
        spoken_digits.conv,
        resnet18_on_small_images,
        tiny_gpt2,
        tiny_bert,
        tiny_vit,
        tiny_gnmt,
    ],
)
def test_a_few_steps_on_one_batch_lower_its_loss(factory: Callable[[], Task]) -> None:
    torch.manual_seed(0)
    task = factory()
    for module in task.model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0
    inputs, target = task.batch(2)
    optimizer = torch.optim.Adam(task.model.parameters(), lr=1e-3)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = task.loss(task.model(*inputs), target)
        torch.autograd.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    ("factory", "samples"), [(images.alexnet, 1), (inception.inception_v3, 2), (ssd.ssd300, 2)]
)
def test_one_step_gives_every_parameter_a_gradient(
    factory: Callable[[], Task], samples: int
) -> None:
    torch.manual_seed(0)
    task = factory()
    inputs, target = task.batch(samples)
    torch.autograd.backward(task.loss(task.model(*inputs), target))
    for name, parameter in task.model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


def test_gpt2_ignores_later_tokens() -> None:
    task = tiny_gpt2()
    (tokens,), _ = task.batch(1)
    changed = tokens.clone()
    changed[0, 10:] = (changed[0, 10:] + 1) % 50
    with torch.no_grad():
        before, after = task.model(tokens), task.model(changed)
    torch.testing.assert_close(before[:, :10], after[:, :10])
    assert not torch.allclose(before[:, 10:], after[:, 10:])


def test_ssd_has_every_box_of_the_paper() -> None:
    with torch.device("meta"):
        task = ssd.ssd300()
        offsets, logits = task.model(*task.batch(2)[0])
    assert offsets.shape == (2, 8732, 4)
    assert logits.shape == (2, 8732, 81)


def test_ssd_loss_uses_the_three_hardest_negatives_per_positive() -> None:
    logits = torch.zeros(1, 10, 81)
    logits[0, :, 0] = torch.arange(10.0)  # box 0 is the least certain of background
    target = torch.zeros(1, 10, 5)
    target[0, 9, 4] = 7
    offsets = torch.zeros(1, 10, 4)
    by_box = nn.functional.cross_entropy(logits[0], target[0, :, 4].long(), reduction="none")
    expected = by_box[[0, 1, 2, 9]].sum()
    torch.testing.assert_close(ssd.multibox_loss((offsets, logits), target), expected)


def test_reading_the_registry_does_not_import_torch() -> None:
    code = (
        "import sys, gpuyard.workloads.zoo, gpuyard.catalog.models, "
        "gpuyard.workloads.digit_clips; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
