"""Training precisions: their cost, their savings, and figures measured in another one."""

import pytest

from gpuyard.catalog import gpus, models
from gpuyard.errors import UserMistake
from gpuyard.predictor import Prediction, Remedy, create_scenario, estimate_compute_line, predict
from gpuyard.predictor.calibration.applied import calibrated_line
from gpuyard.predictor.compute import (
    change_workload_precision,
    choose_half_precision,
    describe_precision,
    estimate_from_published,
    resolve_compute_precision,
    resolve_precision,
    roofline,
)
from gpuyard.predictor.explain.remedies import find_remedies
from gpuyard.specs import Cluster, KnownThroughput, MachineSpec, Network, Precision, Workload
from tests.conftest import MakeCalibration


def workload(
    model: str = "resnet50", precision: Precision | None = None, **described: object
) -> Workload:
    return Workload.model_validate(
        {"name": model, "model": model, "precision": precision, **described}
    )


def used(gpu: str, model: str = "resnet50", precision: Precision | None = None) -> Precision:
    return resolve_precision(gpus().get(gpu), workload(model, precision), models().get(model))


def find_relief(spec: Workload, gpu: str, count: int = 1) -> tuple[Prediction, dict[str, Remedy]]:
    machine = MachineSpec(gpu=gpu, gpus=count)
    cluster = Cluster(name="c", nodes=2, machine=machine, network=Network(link="ethernet-100g"))
    scenario = create_scenario(spec, models().get(spec.model_name), cluster)
    (prediction,) = predict(scenario, scenario.platform.placements([2 * count])).predictions
    return prediction, {remedy.change: remedy for remedy in find_remedies(scenario, prediction)}


@pytest.mark.parametrize(
    ("gpu", "model", "precision"),
    [
        ("a100-sxm4-40gb", "resnet50", "tf32"),
        ("rtx-4090", "spoken-digits-conv", "tf32"),
        ("a100-sxm4-40gb", "gnmt", "tf32"),  # cuDNN's RNNs
        ("a100-sxm4-40gb", "gpt2", "fp32"),
        ("a100-sxm4-40gb", "vit-b-16", "fp32"),
        ("v100-sxm2-16gb", "resnet50", "fp32"),
        ("mi300x", "resnet50", "fp32"),
    ],
)
def test_the_default_precision_is_that_of_pytorch(
    gpu: str, model: str, precision: Precision
) -> None:
    assert used(gpu, model) == precision
    assert precision in describe_precision(gpus().get(gpu), workload(model), models().get(model))
    assert "default" in describe_precision(gpus().get(gpu), workload(model), models().get(model))


def test_a_given_precision_is_used() -> None:
    assert used("a100-sxm4-40gb", precision="fp32") == "fp32"
    assert used("v100-sxm2-16gb", precision="tf32") == "fp32"
    assert used("gtx-1080-ti", precision="fp16") == "fp16"
    words = describe_precision(
        gpus().get("v100-sxm2-16gb"), workload(precision="tf32"), models().get("resnet50")
    )
    assert words.endswith("has no tf32.")


@pytest.mark.parametrize(
    ("gpu", "precision"),
    [
        ("gtx-1080-ti", "fp16"),
        ("m40", "fp16"),
        ("p100-sxm2-16gb", "fp16"),
        ("v100-sxm2-16gb", "bf16"),
        ("t4", "bf16"),
    ],
)
def test_cards_without_fast_16_bit_units_have_fp32s_speed(gpu: str, precision: Precision) -> None:
    card, profile = gpus().get(gpu), models().get("resnet50")
    assert resolve_compute_precision(precision, card) == "fp32"
    slow, fp32 = roofline(profile, card, precision), roofline(profile, card, "fp32")
    assert slow == fp32
    words = describe_precision(card, workload(precision=precision), profile)
    assert "fp32 or slower" in words


def test_a_precision_without_a_rate_is_an_error() -> None:
    with pytest.raises(UserMistake, match=r"no fp16 rate for tpu-v4.*it has bf16"):
        roofline(models().get("resnet50"), gpus().get("tpu-v4"), "fp16")


@pytest.mark.parametrize(
    ("gpu", "half"),
    [("a100-sxm4-40gb", "bf16"), ("v100-sxm2-16gb", "fp16"), ("gtx-1080-ti", "fp16")],
)
def test_bf16_is_proposed_if_it_is_fast(gpu: str, half: Precision) -> None:
    assert choose_half_precision(gpus().get(gpu)) == half


def test_mixed_precision_helps_and_does_not_shrink_the_exchange() -> None:
    spec = workload("gpt2", batch_per_gpu=2)
    prediction, remedies = find_relief(spec, "a100-sxm4-40gb", 4)
    assert prediction.precision == "fp32"
    half, tf32 = (
        remedies["bf16 training (mixed precision, autocast)"],
        remedies["tf32 instead of fp32"],
    )
    assert half.gain > tf32.gain > 1.3
    assert half.memory_bytes is not None
    assert half.memory_bytes < prediction.memory_bytes
    assert "exchanged in fp32" in half.caveat
    in_bf16, others = find_relief(workload("gpt2", "bf16", batch_per_gpu=2), "a100-sxm4-40gb", 4)
    assert half.samples_per_second == pytest.approx(in_bf16.samples_per_second)
    assert half.memory_bytes == pytest.approx(in_bf16.memory_bytes)
    assert not [what for what in others if "training" in what or "tf32" in what]
    assert in_bf16.step.exposed_communication_seconds > (
        prediction.step.exposed_communication_seconds
    )


def test_fp16_needs_loss_scaling_and_is_what_volta_gets_even_instead_of_bf16() -> None:
    for precision in (None, "bf16"):
        _, remedies = find_relief(workload(precision=precision), "v100-sxm2-16gb", 4)
        half = remedies["fp16 training (mixed precision, autocast)"]
        assert half.gain > 1.5
        assert "GradScaler" in half.caveat


def test_half_precision_on_pascal_is_proposed_only_to_fit() -> None:
    _, fits = find_relief(workload(batch_per_gpu=64), "gtx-1080-ti")
    assert not [what for what in fits if "training" in what]
    prediction, remedies = find_relief(workload(batch_per_gpu=160), "gtx-1080-ti")
    assert prediction.fits is False
    half = remedies["fp16 training (mixed precision, autocast)"]
    assert half.makes_fit
    assert half.memory_bytes is not None
    assert half.memory_bytes < gpus().get("gtx-1080-ti").memory_bytes


def test_a_precision_that_does_not_fit_is_not_proposed() -> None:
    _, remedies = find_relief(workload("gpt2-xl", batch_per_gpu=8), "rtx-3090", 4)
    assert not [what for what in remedies if "training" in what]


KNOWN = KnownThroughput(gpu="a100-sxm4-40gb", batch_per_gpu=64, samples_per_second=800)


def test_a_figure_keeps_the_precision_of_its_measurement() -> None:
    profile, gpu = models().get("resnet50"), gpus().get("a100-sxm4-40gb")
    mine = workload(measured=[KNOWN.model_dump()])
    as_measured = estimate_compute_line(mine, profile, gpu)
    assert as_measured.basis == "measured"
    other = change_workload_precision(mine, profile, "bf16")
    assert [figure.precision for figure in other.measured] == ["tf32"]
    line = estimate_compute_line(other, profile, gpu)
    assert line.basis == "scaled"
    assert "rooflines in tf32 and bf16" in line.source
    bf16, tf32 = (
        estimate_from_published(mine, profile, gpu, precision).seconds_per_sample
        for precision in ("bf16", "tf32")
    )
    assert line.seconds_per_sample == pytest.approx(as_measured.seconds_per_sample * bf16 / tf32)
    back = estimate_compute_line(change_workload_precision(other, profile, "tf32"), profile, gpu)
    assert back.basis == "measured"


def test_a_figure_of_the_same_precision_takes_precedence() -> None:
    profile = models().get("resnet50")
    both = [
        KNOWN.model_dump() | {"precision": "fp16", "samples_per_second": 1500},
        KNOWN.model_dump() | {"precision": "tf32"},
    ]
    spec = workload(precision="fp16", measured=both)
    line = estimate_compute_line(spec, profile, gpus().get("a100-sxm4-40gb"))
    assert line.basis == "measured"
    assert 64 / (line.fixed_seconds + 64 * line.seconds_per_sample) == pytest.approx(1500)
    elsewhere = estimate_compute_line(spec, profile, gpus().get("v100-sxm2-16gb"))
    assert "in tf32" not in elsewhere.source


def test_a_calibration_of_another_precision_is_scaled(
    make_calibration: MakeCalibration,
) -> None:
    profile, gpu = models().get("resnet50"), gpus().get("a100-sxm4-40gb")
    runs = make_calibration(gpu.id, "tf32")
    assert calibrated_line(workload(), profile, gpu, runs).basis == "measured"
    line = calibrated_line(workload(precision="bf16"), profile, gpu, runs)
    assert line.basis == "scaled"
    assert "rooflines in tf32 and bf16" in line.source


def test_tf32_is_proposed_if_one_setting_enables_it() -> None:
    _, remedies = find_relief(workload("gpt2", batch_per_gpu=2), "mi300x", 4)
    assert "tf32 instead of fp32" not in remedies
    assert "bf16 training (mixed precision, autocast)" in remedies
