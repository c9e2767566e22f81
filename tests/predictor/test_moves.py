"""Transfers over a GPU's link, and the chart of a sweep over batches."""

import json
from pathlib import Path

import pytest

from gpuyard.catalog import models
from gpuyard.hardware.clusters import read_cluster
from gpuyard.predictor import STRATEGIES, predict_cluster
from gpuyard.specs import ExchangeOptions, Workload
from tests.conftest import Cli

LINEAR = "examples/spoken-digits-linear.workload.yaml"
SWEEP = ("predict", LINEAR, "--on", "4xgtx-1080-ti", "--gpus", "4", "--batch", "5,50,150")


def test_dataparallel_moves_all_parameters_and_gradients_at_every_step() -> None:
    profile = models().get("spoken-digits-linear")
    moves = STRATEGIES["dataparallel"].list_moves(profile, 4, 5, profile.gradient_bytes)
    assert {move.name: move.size_bytes for move in moves} == {
        "samples out": 15 * 48_000,
        "parameters out": 4 * 12_102_220,
        "outputs back": 15 * 4 * 10,
        "gradients back": 4 * 12_102_220,
    }
    assert STRATEGIES["dataparallel"].list_moves(profile, 1, 5, profile.gradient_bytes) == ()


def test_fifty_megabytes_each_way_are_ten_gigabytes_an_epoch() -> None:
    """The founding talk's figure: 2,000 clips at a batch of 20, which leaves out the clips themselves."""
    linear = models().get("spoken-digits-linear")
    *others, first = linear.layers
    wider = first.model_copy(
        update={"parameters": first.parameters + 12_500_000 - linear.parameters}
    )
    larger = linear.model_copy(update={"parameters": 12_500_000, "layers": (*others, wider)})
    moves = STRATEGIES["dataparallel"].list_moves(larger, 4, 5, larger.gradient_bytes)
    sizes = {move.name: 100 * move.size_bytes for move in moves}
    assert sizes["parameters out"] + sizes["gradients back"] == 10.0e9
    # ours has 12.1 million parameters, and none of its counts comes to that
    both, clip = 100 * 2 * 4 * linear.parameters, 100 * linear.input_bytes
    counts = (both, both + 15 * clip, both + 20 * clip, both + 30 * clip, 3 * both + 15 * clip)
    assert [round(count / 1e9, 2) for count in counts] == [9.68, 9.75, 9.78, 9.83, 29.12]


@pytest.mark.parametrize(
    ("model", "outputs"),
    [("resnet50", 1000), ("bert-large", 2 * 384), ("gnmt", 32_320 * 30), ("gpt2", None)],
)
def test_outputs_include_every_token_and_are_omitted_if_unknown(
    model: str, outputs: int | None
) -> None:
    profile = models().get(model)
    moves = STRATEGIES["dataparallel"].list_moves(profile, 2, 1, profile.gradient_bytes)
    sizes = {move.name: move.size_bytes for move in moves}
    assert sizes.get("outputs back") == (None if outputs is None else 4 * outputs)


@pytest.mark.parametrize(
    ("exchange", "gradient_dtype", "share"),
    [
        ({}, None, 1.0),
        ({}, "bf16", 0.5),
        ({"compress": "fp16"}, None, 0.5),
        ({"accumulate": 4}, "fp16", 0.125),
        ({"local_sgd": 8}, "fp16", 0.125),
    ],
)
def test_a_ring_sends_nearly_twice_the_gradients(
    exchange: dict[str, object], gradient_dtype: str | None, share: float
) -> None:
    profile = models().get("resnet50")
    trained = {"name": "r", "model": "resnet50", "gradient_dtype": gradient_dtype}
    result = predict_cluster(
        Workload.model_validate(trained), profile, read_cluster("4xv100-sxm2-16gb"), [4],
        exchange=ExchangeOptions.model_validate(exchange),
    )  # fmt: skip
    (move,) = result.predictions[0].moves
    assert move.size_bytes == pytest.approx(1.5 * profile.gradient_bytes * share)


def test_a_sweep_shows_the_bytes_of_an_epoch_and_the_saturating_batch(cli: Cli) -> None:
    document = json.loads(cli(*SWEEP, "--strategy", "dataparallel", "--json").stdout)
    first = document["predictions"][0]
    assert first["epoch_bytes"] == pytest.approx(9.75e9, rel=0.01)  # 100 steps
    assert first["epoch_bytes"] == 100 * sum(move["size_bytes"] for move in first["moves"])
    batch = document["saturating_batch"]
    assert batch > 150
    shown = " ".join(cli(*SWEEP, "--strategy", "dataparallel").stdout.split())
    assert f"saturated (twice the batch gains less than 10%) at a batch of {batch:,}" in shown
    assert "over the first GPU's link" in shown


def test_the_chart_of_a_sweep_is_written_as_a_picture(cli: Cli, tmp_path: Path) -> None:
    chart = tmp_path / "sweep.svg"
    cli(*SWEEP, "--strategy", "dataparallel", "--svg", str(chart))
    drawn = chart.read_text(encoding="utf-8")
    assert drawn.count("<circle") == 3
    assert "batch 600" in drawn
    refused = cli(*SWEEP[:-2], "--svg", str(chart), status=2)
    assert "add --why" in refused.stderr
