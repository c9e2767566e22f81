"""A strategy is an object: the table, the explanation, and the knee never check which one it is."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from gpuyard.catalog import ModelProfile, models
from gpuyard.errors import UnknownName, UserMistake
from gpuyard.predictor import STRATEGIES, PlatformScenario, create_scenario, predict
from gpuyard.predictor.constants import load_tuning
from gpuyard.predictor.explain.why import explain
from gpuyard.predictor.strategies.base import FRAMEWORK_BYTES
from gpuyard.predictor.strategies.ddp import Ddp
from gpuyard.predictor.strategies.remedies import propose_accumulation
from gpuyard.predictor.table import Floats
from gpuyard.specs import Cluster, ExchangeOptions, MachineSpec, Network, StrategyName, Workload

VGG = models().get("vgg16")
WORKLOAD = Workload(name="v", model="vgg16", batch_per_gpu=32)
CLUSTER = Cluster(
    name="two machines",
    nodes=2,
    machine=MachineSpec(gpu="v100-sxm2-16gb", gpus=8, topology="nvlink-hybrid-cube-mesh"),
    network=Network(link="ethernet-25g"),
)


class Sharded(Ddp):
    """A new strategy: every GPU keeps its share of parameters, gradients, and momentum."""

    name = "sharded"
    max_machines = 1
    machine_limit_reason = "this one stays in a machine"
    options = frozenset({"accumulate"})
    unsupported_option = "sharded training has no {}"
    remedies = (propose_accumulation,)

    def memory_bytes(
        self,
        workload: Workload,
        profile: ModelProfile,
        exchange: ExchangeOptions,
        *,
        batch_per_gpu: Floats,
        gpus: Floats,
    ) -> Floats:
        activations = batch_per_gpu * profile.sample_bytes(autocast=workload.autocast)
        return 3.0 * profile.gradient_bytes / gpus + activations


def sharded(**chosen: object) -> PlatformScenario:
    whole = create_scenario(WORKLOAD, VGG, CLUSTER)
    return replace(whole, strategy=Sharded(), exchange=ExchangeOptions.model_validate(chosen))


def test_users_can_name_every_strategy() -> None:
    assert set(get_args(StrategyName)) <= set(STRATEGIES)
    assert all(STRATEGIES[name].name == name for name in STRATEGIES)
    with pytest.raises(UnknownName, match="did you mean 'horovod'"):
        STRATEGIES["horovo"]


def test_memory_is_per_gpu() -> None:
    whole = create_scenario(WORKLOAD, VGG, CLUSTER)
    assert whole.memory_bytes(1) == whole.memory_bytes(16)
    parts = predict(sharded(), sharded().platform.placements([1, 2, 8])).predictions
    needed = [p.memory_bytes for p in parts]
    assert needed[0] == whole.memory_bytes(1) - FRAMEWORK_BYTES
    saved = 3 * VGG.gradient_bytes * np.array([0, 1 / 2, 7 / 8])
    assert needed == pytest.approx(needed[0] - saved)


def test_a_new_strategy_is_explained() -> None:
    scenario = sharded()
    (prediction,) = predict(scenario, scenario.platform.placements([8])).predictions
    why = explain(scenario, prediction)
    assert why.timeline.step_seconds == pytest.approx(prediction.step.seconds)
    assert why.knee.current.max_gpus == 8  # of one machine


def test_a_strategy_reports_unsupported_options() -> None:
    with pytest.raises(UserMistake, match="sharded training has no bucket_mb, compress"):
        sharded(compress="fp16", bucket="25 MiB")
    sharded(accumulate=4)
    with pytest.raises(UserMistake, match="this one stays in a machine"):
        predict(sharded(), sharded().platform.placements([16]))


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_uses_constants_with_a_source(name: str) -> None:
    strategy = STRATEGIES[name]
    hides = (strategy.overlap(load_tuning()), strategy.overlap_between(load_tuning()))
    for constant in (*strategy.constants, *hides, *strategy.slowdowns(load_tuning())):
        assert constant.source
        assert constant.value >= 0


@pytest.mark.parametrize("name", get_args(StrategyName))
def test_every_proposed_remedy_is_supported(name: str) -> None:
    scenario = create_scenario(WORKLOAD, VGG, CLUSTER, strategy=name)
    (here,) = scenario.platform.placements([8])
    proposed = [p for offered in scenario.strategy.remedies for p in offered(scenario, here)]
    assert proposed
    for proposal in proposed:  # a scenario that is refused can't be made
        assert proposal.rate(here) > 0
