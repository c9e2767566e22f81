"""A strategy is an object: the table, the explanation and the knee ask it, and never which one it is."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from gpuyard.catalog import ModelProfile, models
from gpuyard.errors import UnknownName, UserMistake
from gpuyard.predict import STRATEGIES, PlatformScenario, predict, scenario_of
from gpuyard.predict.constants import fitted
from gpuyard.predict.explain.why import explain
from gpuyard.predict.strategies.ddp import Ddp
from gpuyard.predict.strategies.remedies import accumulation
from gpuyard.predict.table import Floats
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
    """What a stranger would write: every GPU keeps its share of parameters, gradients and momentum."""

    name = "sharded"
    most_machines = 1
    why_no_more_machines = "this one stays in a machine"
    options = frozenset({"accumulate"})
    no_other_option = "sharded training has no {}"
    remedies = (accumulation,)

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
    whole = scenario_of(WORKLOAD, VGG, CLUSTER)
    return replace(whole, strategy=Sharded(), exchange=ExchangeOptions.model_validate(chosen))


def test_users_may_name_what_is_there() -> None:
    assert set(get_args(StrategyName)) <= set(STRATEGIES)
    assert all(STRATEGIES[name].name == name for name in STRATEGIES)
    with pytest.raises(UnknownName, match="did you mean 'horovod'"):
        STRATEGIES["horovo"]


def test_memory_is_that_of_one_of_so_many_gpus() -> None:
    whole = scenario_of(WORKLOAD, VGG, CLUSTER)
    assert whole.memory_bytes(1) == whole.memory_bytes(16)
    parts = predict(sharded(), sharded().platform.placements([1, 2, 8])).predictions
    needed = [p.memory_bytes for p in parts]
    assert needed[0] == whole.memory_bytes(1)
    saved = 3 * VGG.gradient_bytes * np.array([0, 1 / 2, 7 / 8])
    assert needed == pytest.approx(needed[0] - saved)


def test_a_new_one_is_explained_without_anybody_knowing_its_name() -> None:
    scenario = sharded()
    (made,) = predict(scenario, scenario.platform.placements([8])).predictions
    why = explain(scenario, made)
    assert why.timeline.step_seconds == pytest.approx(made.step.seconds)
    assert why.knee.as_it_is.most_gpus == 8  # of one machine


def test_it_says_itself_what_it_can_not_do() -> None:
    with pytest.raises(UserMistake, match="sharded training has no bucket_mb, compress"):
        sharded(compress="fp16", bucket="25 MiB")
    sharded(accumulate=4)
    with pytest.raises(UserMistake, match="this one stays in a machine"):
        predict(sharded(), sharded().platform.placements([16]))


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_one_stands_on_constants_that_have_a_source(name: str) -> None:
    strategy = STRATEGIES[name]
    hides = (strategy.overlap(fitted()), strategy.overlap_between(fitted()))
    for constant in (*strategy.constants, *hides, *strategy.slowdowns(fitted())):
        assert constant.source
        assert constant.value >= 0


@pytest.mark.parametrize("name", get_args(StrategyName))
def test_every_remedy_that_it_offers_is_one_that_it_allows(name: str) -> None:
    scenario = scenario_of(WORKLOAD, VGG, CLUSTER, strategy=name)
    (here,) = scenario.platform.placements([8])
    proposed = [p for offered in scenario.strategy.remedies for p in offered(scenario, here)]
    assert proposed
    for proposal in proposed:  # a scenario that is refused can't be made
        assert proposal.rate(here) > 0
