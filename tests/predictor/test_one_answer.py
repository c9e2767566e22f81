"""Properties of one GPU's speed over many GPUs, models, and precisions.

It is monotonic where physics is, and commands that answer the same question give the same answer.
"""

import math

import pytest

from gpuyard.catalog import Gpu, gpus, models
from gpuyard.catalog.specfiles import read_workload
from gpuyard.errors import UserMistake
from gpuyard.planner.gpu_ranking import rank_gpus
from gpuyard.planner.throughput import find_compute_lines
from gpuyard.predictor import estimate_compute_line, predict_cluster
from gpuyard.specs import Cluster, MachineSpec, Precision, Workload

MODELS = ("resnet50", "ssd", "vgg16", "bert-base", "gpt2", "vit-b-16", "gnmt")
SOME_GPUS = [*gpus()][::6]
PRECISIONS: tuple[Precision, ...] = ("fp32", "tf32", "fp16", "bf16")


def workload(model: str, precision: Precision | None = None, **keys: object) -> Workload:
    return read_workload(model).model_copy(update={"precision": precision, **keys})


def rate(spec: Workload, gpu: Gpu) -> float:
    line = estimate_compute_line(spec, models().get(spec.model_name), gpu)
    return spec.batch_per_gpu / (line.fixed_seconds + spec.batch_per_gpu * line.seconds_per_sample)


@pytest.mark.parametrize("model", MODELS)
def test_tf32_is_never_slower_than_fp32(model: str) -> None:
    slower = [
        gpu.id
        for gpu in gpus()
        if gpu.tf32_tflops and gpu.fp32_tflops and gpu.tf32_tflops >= gpu.fp32_tflops
        and rate(workload(model, "tf32"), gpu) < rate(workload(model, "fp32"), gpu) * (1 - 1e-9)
    ]  # fmt: skip
    assert slower == []


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("model", MODELS)
def test_more_of_anything_is_never_slower(model: str, precision: Precision) -> None:
    """Twice the arithmetic, twice the memory rate, or a larger batch never lowers the throughput."""
    for gpu in SOME_GPUS:
        if gpu.peak_flops(precision) is None and gpu.fp32_tflops is None:
            continue
        spec = workload(model, precision)
        base = rate(spec, gpu)
        peaks = {f"{p}_tflops": getattr(gpu, f"{p}_tflops") for p in PRECISIONS}
        doubled = {name: 2 * value for name, value in peaks.items() if value}
        memory = {"memory_bandwidth_gb_per_second": 2 * gpu.memory_bandwidth_gb_per_second}
        assert rate(spec, gpu.model_copy(update=doubled)) >= base
        assert rate(spec, gpu.model_copy(update=memory)) >= base
        assert rate(workload(model, precision, batch_per_gpu=2 * spec.batch_per_gpu), gpu) >= base


@pytest.mark.parametrize("precision", [None, "fp16"])
@pytest.mark.parametrize("model", ["ssd", "resnet50", "bert-base"])
def test_the_catalog_predict_and_plan_agree(model: str, precision: Precision | None) -> None:
    spec, profile = workload(model, precision), models().get(model)
    ranked, _ = rank_gpus(spec, profile, SOME_GPUS)
    assert len(ranked) > 10
    for entry in ranked:
        cluster = Cluster(name="one", machine=MachineSpec(gpu=entry.gpu.id, gpus=1))
        (predicted,) = predict_cluster(spec, profile, cluster, (1,)).predictions
        assert entry.samples_per_second == predicted.samples_per_second
        assert (entry.low, entry.high) == (predicted.low, predicted.high)
        lines = find_compute_lines(spec, profile, [entry.gpu], None, (entry.precision,))
        line = lines[entry.gpu.id][entry.precision]
        step = line.fixed_seconds + spec.batch_per_gpu * line.seconds_per_sample
        assert spec.batch_per_gpu / step == pytest.approx(entry.samples_per_second, rel=0.02)


@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16", "bf16"])
def test_faster_memory_alone_does_not_put_the_h100_nvl_above_the_sxm5(precision: Precision) -> None:
    nvl, sxm5 = gpus().get("h100-nvl-94gb"), gpus().get("h100-sxm5-80gb")
    for model in MODELS:
        spec = workload(model, precision)
        assert rate(spec, nvl) <= rate(spec, sxm5) * (1 + 1e-9), model


def test_a_gpu_or_vendor_without_figures_has_a_wider_interval_and_a_caveat() -> None:
    spec, profile = workload("resnet50", "fp16"), models().get("resnet50")
    known, unknown, other_vendor = (
        estimate_compute_line(spec, profile, gpus().get(name))
        for name in ("a100-sxm4-80gb", "rtx-5090", "mi300x")
    )
    assert known.basis == "published"
    assert known.caveat == ""
    assert "RTX 5090" in unknown.caveat
    assert "AMD" in other_vendor.caveat
    assert (
        known.relative_uncertainty
        < unknown.relative_uncertainty
        < other_vendor.relative_uncertainty / 1.5
    )


def test_the_layout_matters_to_convolutions_on_tensor_cores_only() -> None:
    def gain(model: str, gpu: str, precision: Precision) -> float:
        card = gpus().get(gpu)
        changed = workload(model, precision, channels_last=True)
        return rate(changed, card) / rate(workload(model, precision), card)

    assert gain("resnet50", "rtx-3090", "fp16") == pytest.approx(1.47, rel=0.1)
    assert 1.1 < gain("resnet50", "a100-sxm4-80gb", "fp16") < 1.7
    assert gain("vit-b-16", "rtx-3090", "fp16") == 1
    assert gain("resnet50", "gtx-1080-ti", "fp32") == 1


def test_published_figures_are_inside_the_intervals_of_predict() -> None:
    """timm's table for an RTX 3090 under AMP; ResNet-50 in channels_last."""
    card = gpus().get("rtx-3090")
    for model, batch, figure, layout in (
        ("vit-b-16", 256, 393, False),
        ("vit-l-16", 128, 117, False),
        ("resnet50", 256, 1218, True),
    ):
        spec = workload(model, "fp16", batch_per_gpu=batch, channels_last=layout)
        line = estimate_compute_line(spec, models().get(model), card)
        assert abs(math.log(rate(spec, card) / figure)) < 0.1
        assert line.basis == "published"


def test_an_unknown_precision_is_a_mistake() -> None:
    with pytest.raises(UserMistake):
        rate(workload("resnet50", "fp16"), gpus().get("tpu-v4"))
