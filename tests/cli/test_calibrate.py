"""`gpuyard calibrate` as a user runs it: on real runs, on a colleague's export, and on wrong files."""

import json
import os
from pathlib import Path

import pytest

import gpuyard as gy
from gpuyard import files
from gpuyard.api.calibration import CalibrationIsWorse
from gpuyard.measure.kind import to_json_lines
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.training.records import MeasuredStep, Measurement
from gpuyard.predictor.calibration.document import calibration_from_json
from gpuyard.study import parse_study_result
from tests.conftest import MACHINE, Cli, MakeMeasurement

MODEL = """\
from torch import nn


def wide():
    return nn.Sequential(nn.Flatten(), nn.Linear(1024, 256), nn.ReLU(), nn.Linear(256, 10))
"""
WORKLOAD = """\
name: wide
model: own_model:wide
batch_per_gpu: 8
dataset: {samples: 512}
input: {shape: [1024]}
target: {classes: 10}
"""
STUDY = """\
name: A model of my own
workloads: [wide.workload.yaml]
measure: {workers: [1, 2], batch: [4, 8], time_per_point: 200 ms}
"""
PREDICT = ("predict", "alexnet", "--on", "four.cluster.yaml", "--gpus", "1,4", "--batch", "16")
CLUSTER = "name: four cards\nmachine: {gpu: rtx-2080-ti, gpus: 4}\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    directory.mkdir()
    (directory / "own_model.py").write_text(MODEL)
    (directory / "wide.workload.yaml").write_text(WORKLOAD)
    (directory / "wide.study.yaml").write_text(STUDY)
    (directory / "four.cluster.yaml").write_text(CLUSTER)
    return directory


@pytest.fixture
def on_gpus(make_measurement: MakeMeasurement) -> list[Measurement]:
    """AlexNet, 244 MB of gradients, on four cards: 20 ms + 1 ms a sample, 1.5 GB/s, nothing hides."""
    plain = make_measurement()
    there = plain.provenance.model_copy(update={"gpus": ("NVIDIA GeForce RTX 2080 Ti",) * 4})
    runs = []
    for number, (workers, batch) in enumerate([(1, 8), (1, 32), (2, 8), (2, 32), (4, 8), (4, 32)]):
        compute = 0.02 + 0.001 * batch
        exchange = 2 * (workers - 1) / workers * 244e6 / 1.5e9
        step = MeasuredStep(
            step_seconds=compute + exchange,
            compute_seconds=compute,
            exposed_communication_seconds=exchange,
            input_seconds=0.0,
        )
        rate = workers * batch / step.step_seconds
        runs.append(
            plain.model_copy(
                update={
                    "id": f"{number:012x}",
                    "workload": "alexnet",
                    "spec": {"name": "alexnet", "model": "alexnet"},
                    "device": "cuda",
                    "workers": workers,
                    "batch_per_worker": batch,
                    "samples_per_second": rate,
                    "low": 0.98 * rate,
                    "high": 1.02 * rate,
                    "step": step,
                    "all_reduce_seconds": exchange or None,
                    "provenance": there,
                }
            )
        )
    return runs


@MACHINE
@pytest.mark.soak  # docs/calibrate.md has runs measured and calibrated, too
def test_real_runs_are_calibrated_and_a_study_uses_it(cli: Cli, project: Path, home: Path) -> None:
    bench = ("bench", "train", "wide.workload.yaml", "--workers", "1,2", "--batch", "4,8")
    cli(*bench, "--time-per-point", "0.2 s", cwd=project)
    file = home / "calibration.json"
    # runs as short as these are doubtful wherever something else has work, too
    tried = cli("calibrate", "--doubtful", "--dry-run", cwd=project)
    assert "Compute of one worker" in tried.stdout
    assert "Dry run: would " in tried.stdout
    assert not file.exists()
    done = json.loads(cli("calibrate", "--doubtful", "--force", "--json", cwd=project).stdout)
    assert done["written"] == str(file)
    kept = calibration_from_json(file.read_text(), "file")
    assert kept.model_dump(mode="json") == done["calibration"]
    (entry,) = kept.hardware
    assert (entry.device, entry.runs, entry.cores_per_worker) == ("cpu", 4, 1)
    (line,) = entry.lines
    assert (line.model, line.runs) == ("own_model:wide", 4)
    assert (line.smallest_batch, line.largest_batch) == (4, 8)
    assert entry.errors.configurations == 4

    cli("study", "wide.study.yaml", "--output-dir", "with", cwd=project)
    cli("study", "wide.study.yaml", "--output-dir", "without", "--calibration", "none", cwd=project)
    used, plain = (
        parse_study_result((project / name / "study.json").read_text(encoding="utf-8"))
        for name in ("with", "without")
    )
    calibrated = {c.name for c in used.workloads[0].curves[0].constants if "calibrated" in c.source}
    exchange = {constant.name for constant in entry.constants}
    assert calibrated == exchange & {c.name for c in used.workloads[0].curves[0].constants}
    assert any("Constants are calibrated with 4 runs" in n for n in used.notes) == bool(calibrated)
    assert not any("calibrated" in c.source for c in plain.workloads[0].curves[0].constants)

    cli("calibrate", "--remove", "--dry-run", cwd=project)
    assert file.exists()
    assert "Removed" in cli("calibrate", "--remove", cwd=project).stdout
    assert not file.exists()
    assert "There is no calibration" in cli("calibrate", "--remove", cwd=project).stdout


def test_a_colleagues_export_sharpens_a_prediction(
    cli: Cli, project: Path, on_gpus: list[Measurement]
) -> None:
    (project / "runs.jsonl").write_text(to_json_lines(on_gpus))
    plain = cli(*PREDICT, cwd=project)
    assert "Measured:" not in plain.stdout
    assert "Single-GPU speed: " in plain.stdout
    done = cli("calibrate", "--results", "runs.jsonl", "--output", "mine.json", cwd=project)
    assert "4 × rtx-2080-ti: constants" in done.stdout
    assert "Written to mine.json" in done.stdout
    assert not files.calibration_file().exists()
    assert cli(*PREDICT, cwd=project).stdout == plain.stdout

    arguments = (*PREDICT, "--calibration", "mine.json")
    sharp = cli(*arguments, cwd=project)
    assert "measured (calibrated with 6 runs on 4 × rtx-2080-ti)" in sharp.stdout
    assert "Measured: link_inside 1." in sharp.stdout
    assert "Assumed" not in sharp.stdout  # nothing of the roofline is left
    answer = json.loads(cli(*arguments, "--json", "--why", cwd=project).stdout)
    assert answer["calibration"]["created_at"]
    four = next(p for p in answer["predictions"] if p["gpus"] == 4)
    # 16 × 4 over 36 ms of compute and 3/2 × 244 MB at 1.5 GB/s
    assert four["samples_per_second"] == pytest.approx(64 / (0.036 + 0.244), rel=0.1)
    bases = {c["name"]: c["basis"] for c in answer["constants"]}
    assert bases["link_inside"] == "measured"
    values = {c["name"]: c["value"] for c in answer["constants"]}
    assert values["link_inside"] == pytest.approx(1.5e9, rel=0.1)
    assert bases["ddp_bucket"] == "published"

    runs = gy.calibrate(project / "runs.jsonl", dry_run=True)
    assert (runs.written, [row.runs for row in runs]) == (None, [6])
    assert "Dry run: would be written" in str(runs)

    other = cli(
        "predict", "resnet50", "--on", "dgx-1-v100", "--calibration", "mine.json", cwd=project
    )
    assert "calibration does not cover" in other.stdout
    assert "4 × rtx-2080-ti" in other.stdout
    assert json.loads(
        cli("predict", "resnet50", "--on", "dgx-1-v100", "--calibration", "mine.json", "--json",
            cwd=project).stdout
    )["calibration"] is None  # fmt: skip


def test_too_few_measurements_are_reported(
    cli: Cli, project: Path, on_gpus: list[Measurement]
) -> None:
    done = cli("calibrate", cwd=project, status=1)
    assert "no training runs found" in done.stderr
    assert "gpuyard bench train" in done.stderr
    (project / "runs.jsonl").write_text(to_json_lines(on_gpus[:2]))
    done = cli("calibrate", "--results", "runs.jsonl", cwd=project, status=1)
    assert all(
        figure in done.stderr
        for figure in ("4 × rtx-2080-ti", "2 training runs", "2 configurations", "needs 4")
    )
    done = cli("calibrate", "--results", "nowhere.jsonl", cwd=project, status=2)
    assert "nowhere.jsonl" in done.stderr


def test_doubtful_runs_count_only_with_an_option(
    cli: Cli, project: Path, on_gpus: list[Measurement]
) -> None:
    busy = "other programs used 40% of the cores"
    doubtful = on_gpus[0].model_copy(update={"id": "f" * 12, "doubt": busy})
    (project / "runs.jsonl").write_text(to_json_lines([*on_gpus, doubtful]))
    arguments = ("calibrate", "--results", "runs.jsonl", "--output", "mine.json", "--json")
    plain = json.loads(cli(*arguments, cwd=project).stdout)
    assert plain["calibration"]["hardware"][0]["runs"] == 6
    (note,) = plain["notes"]
    assert busy in note and "--doubtful" in note
    every = json.loads(cli(*arguments, "--doubtful", cwd=project).stdout)
    assert every["calibration"]["hardware"][0]["runs"] == 7
    assert every["notes"] == []

    alone = [run.model_copy(update={"doubt": busy}) for run in on_gpus[2:]]
    (project / "runs.jsonl").write_text(to_json_lines([*on_gpus[:2], *alone]))
    done = cli(*arguments, cwd=project, status=1)
    assert "has 2 training runs of 2 configurations" in done.stderr
    assert "4 runs are left out" in done.stderr
    (project / "runs.jsonl").write_text(to_json_lines(alone))
    done = cli(*arguments, cwd=project, status=1)
    assert "4 runs are left out" in done.stderr and busy in done.stderr


def test_a_calibration_that_is_worse_is_not_written(
    cli: Cli, project: Path, on_gpus: list[Measurement], home: Path
) -> None:
    """One worker, four batches, steps that have nothing to do with the batch: a fit learns noise."""
    noisy = []
    for number, (batch, seconds) in enumerate([(8, 0.05), (16, 0.005), (32, 0.2), (64, 0.02)]):
        step = on_gpus[0].step.model_copy(
            update={"step_seconds": seconds, "compute_seconds": seconds}
        )
        changed = {"id": f"{number:012x}", "batch_per_worker": batch, "step": step}
        noisy.append(on_gpus[0].model_copy(update=changed))
    store = ResultsStore(home / "results.sqlite")
    for run in noisy:
        store.add(run)
    assert "would not be written" in cli("calibrate", "--dry-run", cwd=project).stdout
    done = cli("calibrate", cwd=project, status=1)
    assert "nothing was written" in done.stderr
    assert "--force" in done.stderr
    assert "--force" in done.stderr
    with pytest.raises(CalibrationIsWorse, match=r"write it anyway with force$") as refusal:
        gy.calibrate()
    (worse,) = refusal.value.result.worse
    assert worse.errors.mean_after > worse.errors.mean_before
    assert not (home / "calibration.json").exists()
    cli("calibrate", "--force", cwd=project)
    assert (home / "calibration.json").exists()


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\x00", b'{"kind": "something"}'])
def test_a_broken_calibration_file_is_reported_without_a_traceback(
    content: bytes, cli: Cli, project: Path, home: Path
) -> None:
    home.mkdir(parents=True)
    (home / "calibration.json").write_bytes(content)
    done = cli(*PREDICT, cwd=project, status=2)
    assert "calibration.json is not a calibration" in done.stderr
    done = cli("study", "wide.study.yaml", cwd=project, status=2)
    assert "--calibration=none" in done.stderr
    assert not (home / "results.sqlite").exists()  # found before anything was measured
    cli(*PREDICT, "--calibration", "none", cwd=project)


def test_a_missing_calibration_file_is_reported_without_a_traceback(
    cli: Cli, project: Path
) -> None:
    done = cli(*PREDICT, "--calibration", "lost.json", cwd=project, status=2)
    assert "lost.json: file not found" in done.stderr


def test_without_scipy_the_error_names_the_package_to_install(
    gpuyard_process: Cli, project: Path, on_gpus: list[Measurement]
) -> None:
    (project / "runs.jsonl").write_text(to_json_lines(on_gpus))
    (project / "without").mkdir()
    (project / "without" / "scipy.py").write_text("raise ImportError('no scipy')\n")
    path = os.pathsep.join([str(project / "without"), os.environ.get("PYTHONPATH", "")])
    arguments = ("calibrate", "--results", "runs.jsonl")
    done = gpuyard_process(*arguments, cwd=project, status=1, environment={"PYTHONPATH": path})
    assert "scipy" in done.stderr
    assert "pip install 'gpuyard[fit]'" in done.stderr
