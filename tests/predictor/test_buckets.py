"""Packing of gradients into buckets."""

import datetime
from typing import get_args

import pytest

from gpuyard.catalog import LayerProfile, ModelProfile, models
from gpuyard.predictor import STRATEGIES
from gpuyard.predictor.table import Buckets
from gpuyard.specs import DEFAULT_EXCHANGE, StrategyName

MIB = 1024 * 1024


def model(*megabytes: float) -> ModelProfile:
    layers = tuple(
        LayerProfile(name=f"layer{i}", parameters=int(mb * MIB / 4), forward_flops=100)
        for i, mb in enumerate(megabytes)
    )
    return ModelProfile(
        id="m",
        name="m",
        sample="a sample",
        parameters=sum(layer.parameters for layer in layers),
        layers=layers,
        forward_flops=100 * len(layers),
        activation_bytes=0,
        activation_bytes_autocast=0,
        largest_activation_bytes=0,
        largest_activation_bytes_autocast=0,
        input_bytes=0,
        source="a test",
        date=datetime.date(2026, 1, 1),
    )


def pack(profile: ModelProfile, strategy: str) -> Buckets:
    return STRATEGIES[strategy].buckets(profile, DEFAULT_EXCHANGE)


def test_ddp_closes_a_small_first_bucket_and_then_25_mib_ones() -> None:
    buckets = pack(model(0.5, 0.5, 10, 10, 10, 3), "ddp")
    assert list(buckets.size_bytes / MIB) == [1, 30, 3]
    assert list(buckets.ready_share) == pytest.approx([2 / 6, 5 / 6, 1])


def test_a_layer_larger_than_the_cap_is_a_separate_bucket() -> None:
    assert list(pack(model(40, 40), "ddp").size_bytes / MIB) == [40, 40]


def test_horovod_fuses_64_mib() -> None:
    assert list(pack(model(30, 30, 30, 30), "horovod").size_bytes / MIB) == [90, 30]


def test_dataparallel_sends_everything_after_backward() -> None:
    buckets = pack(model(1, 2, 3), "dataparallel")
    assert list(buckets.size_bytes / MIB) == [6]
    assert list(buckets.ready_share) == [1]


@pytest.mark.parametrize("strategy", get_args(StrategyName))
@pytest.mark.parametrize("name", models().ids())
def test_no_gradient_is_lost(name: str, strategy: str) -> None:
    profile = models().get(name)
    buckets = pack(profile, strategy)
    assert buckets.total_bytes == profile.gradient_bytes
    assert all(0 < share <= 1 + 1e-12 for share in buckets.ready_share)
    assert list(buckets.ready_share) == sorted(buckets.ready_share)
    assert buckets.ready_share[-1] == pytest.approx(1)
