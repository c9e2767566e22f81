"""`gpuyard watch`: the verdict on a log, and on a real job."""

import json
import random
import re
from datetime import datetime
from pathlib import Path

import pytest

import gpuyard as gy
from gpuyard.api.watch import expect_step
from gpuyard.catalog.prices import find_cheapest_price
from gpuyard.hardware.clusters import read_cluster
from gpuyard.predictor import Prediction
from gpuyard.reporting.ranks import read_rank_log
from gpuyard.reporting.reporter import MARKER, RANK_MARKER
from tests.conftest import Cli


def write_log(path: Path, *, slow: int = 1, gpu: str = "") -> Path:
    lines = []
    testbed = {"gpus": 4, "testbed": {"gpus": [gpu] * 4}} if gpu else {}
    for i in range(12):
        for rank in range(4):
            compute, exchange = (0.17, 0.03) if rank == slow else (0.1, 0.1)
            report = {
                "rank": rank, "host": f"node{rank}", "gpu": 2, "at": 1000 + 10 * i, "steps": 50,
                "samples": 6400, "seconds": 10, "step_seconds": 0.2, "compute_seconds": compute,
                "exchange_seconds": exchange, "input_seconds": 0.0, "cpu_wait": 0.01, **testbed,
            }  # fmt: skip
            lines.append((MARKER if rank == 0 else RANK_MARKER) + json.dumps(report))
    path.write_text("epoch 1\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_a_log_of_all_ranks(cli: Cli, tmp_path: Path) -> None:
    log = write_log(tmp_path / "train.log", slow=3)
    assert "rank 3 (node3, GPU 2)" in cli("watch", "--log", str(log)).stdout.splitlines()[0]
    document = json.loads(cli("watch", "--log", str(log), "--json").stdout)
    assert document == gy.watch(log=log).to_dict()
    assert [(cause["name"], cause["rank"]) for cause in document["causes"]] == [("slow rank", 3)]
    assert document["samples_per_second"] == pytest.approx(640)


def test_the_prediction_is_compared(cli: Cli, tmp_path: Path) -> None:
    log = write_log(tmp_path / "train.log")
    command = ("watch", "--log", str(log), "--workload", "resnet50", "--on", "4xrtx-3090", "--json")
    document = json.loads(cli(*command).stdout)
    assert 0 < document["expected_low_seconds"] < document["expected_high_seconds"]
    assert 0 < document["mfu"] < 1


def test_an_exchange_is_compared_with_a_whole_one(tmp_path: Path) -> None:
    """A loop may hide none of its exchange, of which the prediction hides most."""
    windows = read_rank_log(write_log(tmp_path / "train.log"))
    cluster = read_cluster("2x2xa100@100G")
    expected = expect_step(windows, "resnet50", cluster)
    row = gy.predict("resnet50", on=cluster, gpus=4, batch=32)[0]
    assert isinstance(row, Prediction)
    assert expected is not None
    assert expected.exchange_seconds == row.exchange_seconds
    assert row.exchange_seconds > row.step.exposed_communication_seconds > 0


def test_a_gap_is_priced(cli: Cli, tmp_path: Path) -> None:
    """A slow rank costs 35% of the step: of a price per day if there is one, otherwise of the GPU-hours."""
    log = write_log(tmp_path / "train.log")
    unknown = json.loads(cli("watch", "--log", str(log), "--json").stdout)["cost"]
    assert unknown["usd_per_day"] is None
    assert unknown["gpu_hours_per_day"] == pytest.approx(0.35 * 24 * 4)
    command = ("watch", "--log", str(log), "--price", "$2/h")
    assert "$16.80 a day" in cli(*command).stdout.splitlines()[1]
    known = gy.watch(log=write_log(tmp_path / "a100.log", gpu="NVIDIA A100-SXM4-80GB"))
    price = find_cheapest_price("a100-sxm4-80gb", 4)
    assert price is not None
    assert known.to_dict()["cost"]["usd_per_day"] == pytest.approx(
        0.35 * 24 * 4 * price.usd_per_hour / price.gpus
    )
    assert str(price.date) in known.to_dict()["cost"]["basis"]
    healthy = write_log(tmp_path / "healthy.log", slow=-1)
    assert gy.watch(log=healthy).to_dict()["cost"] is None


def test_the_gap_to_the_prediction_is_priced(tmp_path: Path) -> None:
    log = write_log(tmp_path / "train.log", slow=-1)
    document = gy.watch(log=log, workload="resnet50", on="4xh100", price="$10/h").to_dict()
    low, high = (document[f"expected_{end}_samples_per_second"] for end in ("low", "high"))
    assert document["samples_per_second"] < low < high  # 0.2 s for 128 images
    lost = 1 - document["share_of_expected"]
    assert document["cost"]["usd_per_day"] == pytest.approx(240 * lost)


def test_the_mfu_needs_only_the_reported_gpu_and_the_model(tmp_path: Path) -> None:
    log = write_log(tmp_path / "train.log", gpu="NVIDIA A100-SXM4-80GB")
    alone = gy.watch(log=log, workload="resnet50").to_dict()["mfu"]
    on = gy.watch(log=log, workload="resnet50", on="4xa100-sxm4-80gb").to_dict()["mfu"]
    assert alone == pytest.approx(on)
    assert gy.watch(log=log).to_dict()["mfu"] is None


def test_drift_is_dated_in_a_log_of_hours(cli: Cli, tmp_path: Path) -> None:
    """Normal for 3 h with 3% noise and an evaluation each hour, then 12% slower since 14:05."""
    began = datetime(2026, 3, 2, 11, 5).timestamp()
    noise = random.Random(1)
    lines = []
    for minute in range(4 * 60):
        slow = 1.12 if minute >= 180 else 1.5 if minute % 60 == 30 else 1.0
        seconds = 0.2 * slow * noise.uniform(0.97, 1.03)
        report = {
            "rank": 0, "at": began + 60 * minute, "steps": 300, "samples": 19200, "seconds": 60,
            "step_seconds": seconds, "compute_seconds": seconds,
        }  # fmt: skip
        lines.append(f"epoch {minute}\n{MARKER}{json.dumps(report)}\n")
    log = tmp_path / "train.log"
    log.write_text("".join(lines), encoding="utf-8")
    sentence = next(
        line for line in cli("watch", "--log", str(log)).stdout.splitlines() if "since" in line
    )
    assert "since 14:05" in sentence
    assert re.search(r"1[123]% slower", sentence)
    drift = gy.watch(log=log).to_dict()["drift"]
    assert drift["before_seconds"] == pytest.approx(3 * 3600, rel=0.01)
    log.write_text("".join(lines[:180]), encoding="utf-8")
    assert gy.watch(log=log).to_dict()["drift"] is None


def test_the_newest_reports_of_hundreds_of_ranks_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank becomes slow after more reports than are kept, among lines of junk and with clocks that differ."""
    monkeypatch.setattr("gpuyard.reporting.ranks.MAX_WINDOWS", 2_000)
    lines = []
    for i in range(24):
        for rank in range(128):
            compute = 0.17 if rank == 13 and i >= 14 else 0.1
            report = {
                "rank": rank, "host": f"node{rank // 8}", "at": 1000 + 30 * i + 400 * (rank % 5),
                "steps": 50, "samples": 6400, "seconds": 10, "step_seconds": 0.2, "workers": 128,
                "compute_seconds": compute, "exchange_seconds": 0.2 - compute,
                "warmup": i == 0,
            }  # fmt: skip
            lines.append((MARKER if rank == 0 else RANK_MARKER) + json.dumps(report))
        lines += [MARKER + "{", "\x1b[2J" + RANK_MARKER + "[" * 5000, "x" * 100_000]
    log = tmp_path / "train.log"
    log.write_text("\n".join(lines) + "\n", encoding="utf-8")
    document = gy.watch(log=log).to_dict()
    assert [(cause["name"], cause["rank"]) for cause in document["causes"]] == [("slow rank", 13)]
    assert len(document["ranks"]) == 128
    assert document["silence"] is None


@pytest.mark.parametrize(
    ("arguments", "named", "status"),
    [
        ((), "name the job to judge", 2),
        ((), "--log FILE", 2),
        (("--log", "nothing.log"), "nothing.log not found", 2),
        (("17", "--log", "x"), "not both", 2),
        (("--log", "LOG", "--on", "8xh100"), "--workload", 2),
        (("--log", "EMPTY"), "gpuyard.step()", 1),
        (("--log", "LOG", "--price", "$2"), "$1.50/h", 2),
    ],
)
def test_mistakes(
    cli: Cli, tmp_path: Path, arguments: tuple[str, ...], named: str, status: int
) -> None:
    files = {"LOG": write_log(tmp_path / "log"), "EMPTY": tmp_path / "empty"}
    files["EMPTY"].write_text("epoch 1\n", encoding="utf-8")
    words = [str(files.get(word, word)) for word in arguments]
    assert named in cli("watch", *words, status=status).stderr
