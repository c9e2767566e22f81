"""The GPU memory of a training step; no remedy may exceed it."""

from pathlib import Path

import numpy as np
import pytest

from gpuyard.catalog import models
from gpuyard.catalog.specfiles import read_workload
from gpuyard.hardware.clusters import read_cluster
from gpuyard.predictor import Placement, create_scenario, predict
from gpuyard.predictor.explain.why import Why, explain
from gpuyard.predictor.scenario import PlatformScenario
from gpuyard.predictor.strategies.base import FRAMEWORK_BYTES, activation_bytes, model_bytes
from gpuyard.specs import Cluster, Workload
from gpuyard.workloads import profile_model

RTX_3090 = Cluster.model_validate(
    {
        "name": "2 × 4 RTX 3090",
        "nodes": 2,
        "machine": {"gpu": "rtx-3090", "gpus": 4, "topology": "dual-root"},
        "network": {"link": "ethernet-10g"},
    }
)
GPT2_PARAMETERS = 124_439_808


def workload(model: str, **changes: object) -> Workload:
    return Workload.model_validate({"name": model, "model": model, **changes})


def scenario(spec: Workload, cluster: Cluster = RTX_3090) -> PlatformScenario:
    return create_scenario(spec, profile_model(spec), cluster)


def explained(spec: Workload, gpus: int, cluster: Cluster = RTX_3090) -> Why:
    base_scenario = scenario(spec, cluster)
    (prediction,) = predict(base_scenario, base_scenario.platform.placements([gpus])).predictions
    return explain(base_scenario, prediction)


def test_gpt2_in_bf16_at_48_samples_does_not_fit_into_24_gb() -> None:
    base_scenario = scenario(workload("gpt2", precision="bf16", batch_per_gpu=48))
    assert base_scenario.memory_bytes(1) == pytest.approx(51.8e9, rel=0.01)
    assert not base_scenario.fits(1)
    most = base_scenario.largest_batch(1)
    assert most == 22
    assert base_scenario.change_batch(most).fits(1)
    assert not base_scenario.change_batch(most + 1).fits(1)


def test_mixed_precision_saves_less_than_half_of_a_transformers_activations() -> None:
    def of_a_sample(model: str, precision: str) -> float:
        spec = workload(model, precision=precision)
        return float(activation_bytes(spec, profile_model(spec), np.array(1.0)))

    assert of_a_sample("gpt2", "tf32") == of_a_sample("gpt2", "fp32")
    assert of_a_sample("gpt2", "fp16") == of_a_sample("gpt2", "bf16")
    assert of_a_sample("gpt2", "bf16") == pytest.approx(1.004e9, rel=0.01)
    assert 0.7 < of_a_sample("gpt2", "bf16") / of_a_sample("gpt2", "fp32") < 0.8
    # a convolution's activations are 16-bit numbers, nearly all of them
    assert 0.5 < of_a_sample("resnet50", "bf16") / of_a_sample("resnet50", "fp32") < 0.52


@pytest.mark.parametrize(
    ("optimizer", "bytes_per_parameter"),
    [("sgd", 8), ("momentum", 12), ("adam", 16), ("adamw", 16), ("adam-8bit", 10.03125)],
)
def test_optimizers_differ_in_what_they_keep(optimizer: str, bytes_per_parameter: float) -> None:
    profile = models().get("gpt2")
    fp32 = workload("gpt2", optimizer=optimizer)
    assert model_bytes(fp32, profile) == bytes_per_parameter * GPT2_PARAMETERS
    # autocast keeps the fp32 parameters, and copies them
    bf16 = workload("gpt2", optimizer=optimizer, precision="bf16")
    assert model_bytes(bf16, profile) == (bytes_per_parameter + 2) * GPT2_PARAMETERS


def test_a_transformer_trains_with_adamw_by_default_and_a_resnet_with_momentum() -> None:
    momentum = scenario(workload("gpt2", optimizer="momentum")).memory_bytes(1)
    assert scenario(workload("gpt2")).memory_bytes(1) - momentum == 4 * GPT2_PARAMETERS
    resnet = scenario(workload("resnet50"))
    assert (
        resnet.memory_bytes(1)
        == scenario(workload("resnet50", optimizer="momentum")).memory_bytes(1)
        > scenario(workload("resnet50", optimizer="sgd")).memory_bytes(1)
    )


def test_the_framework_needs_memory_too_and_the_answer_names_the_optimizer() -> None:
    base = scenario(workload("gpt2"))
    needed = base.memory_bytes(1, 0)
    assert needed == FRAMEWORK_BYTES + model_bytes(base.workload, base.profile)
    result = predict(base, [Placement(1, 1, 1)])
    assert result.optimizer == "adamw"
    assert "AdamW" in result.memory_use_note


def test_a_module_in_bf16_is_counted_at_its_width() -> None:
    """Weights, gradients, and moments of a bf16 module have two bytes each, and autocast copies nothing."""
    wide = models().get("gpt2")
    narrow = wide.model_copy(
        update={
            "bytes_per_parameter": 2.0,
            "layers": tuple(x.model_copy(update={"bytes_per_parameter": 2.0}) for x in wide.layers),
        }
    )
    spec = workload("gpt2", precision="bf16")
    assert model_bytes(spec, narrow) == 8 * GPT2_PARAMETERS
    assert model_bytes(spec, wide) == 18 * GPT2_PARAMETERS


def test_frozen_parameters_have_neither_gradient_nor_momentum() -> None:
    whole = models().get("resnet18")
    frozen = whole.model_copy(update={"layers": whole.layers[:1]})  # the classifier alone
    trained = whole.layers[0].parameters
    spec = workload("resnet18", optimizer="adam")
    assert model_bytes(spec, frozen) == 4 * whole.parameters + 12 * trained


def test_a_remedy_that_does_not_fit_is_never_shown() -> None:
    why = explained(workload("gpt2-xl", optimizer="sgd"), 8)
    assert not why.fits
    assert why.remedies
    assert all(remedy.makes_fit for remedy in why.remedies)
    room = 24 * 2**30
    assert all(r.memory_bytes is not None and r.memory_bytes <= room for r in why.remedies)
    texts = [why.knee.remedy, *why.sentences, *(r.change for r in why.remedies)]
    assert not any("PowerSGD" in words for words in texts if words)
    assert "a batch of 1 per GPU" in [remedy.change for remedy in why.remedies]


def test_powersgd_is_not_proposed_where_its_error_has_no_room() -> None:
    spec = workload("gpt2-xl", batch_per_gpu=1, optimizer="sgd")
    base_scenario = scenario(spec)
    assert base_scenario.fits(
        8
    )  # 20.0 of 25.8 GB; PowerSGD needs as much again as the gradients' 6.2 GB
    assert not base_scenario.change_exchange(compress="powersgd:2").fits(8)
    why = explained(spec, 8)
    assert why.remedies
    assert not any("PowerSGD" in remedy.change for remedy in why.remedies)
    assert "PowerSGD" not in (why.knee.remedy or "")


def test_no_remedy_is_proposed_if_nothing_fits() -> None:
    cluster = read_cluster(str(Path("examples") / "workstation.cluster.yaml"))
    why = explained(read_workload("gpt2-xl"), 4, cluster)
    assert not why.fits
    assert why.remedies == ()
    assert "not even one sample fits" in why.sentences[0]


def test_one_gpu_is_a_placement_too() -> None:
    base_scenario = scenario(workload("gpt2-large", batch_per_gpu=64))
    assert not base_scenario.fits(1)
    (prediction,) = predict(base_scenario, [Placement(1, 1, 1)]).predictions
    assert prediction.fits is False
    assert prediction.memory_bytes == base_scenario.memory_bytes(1)
