"""Job reports become one measurement per start, with any doubt about it."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpuyard.catalog.specfiles import read_workload
from gpuyard.measure.calibration import build_calibration_rows
from gpuyard.measure.job_runs.records import JobRun
from gpuyard.measure.job_runs.summary import MAX_WINDOWS, add_new_runs, build_job_runs
from gpuyard.measure.kind import to_json_lines
from gpuyard.measure.reading import read_results
from gpuyard.measure.store import ResultsStore
from gpuyard.predictor.calibration.calibrate import calibrate
from gpuyard.predictor.calibration.rows import Hardware
from gpuyard.reporting.windows import StepWindow
from gpuyard.specs import Workload
from tests.conftest import Cli

RESNET = read_workload("resnet50")
V100S = {
    "gpuyard": "0.1.0", "torch": "2.13.0", "python": "3.11", "os": "Debian", "kernel": "6.1", "host": "n1",
    "cpu_model": "Xeon", "cores": 40, "memory_bytes": 1, "threads_per_worker": 1,
    "gpus": ("Tesla V100-SXM2-16GB",) * 4,
}  # fmt: skip


def reports(
    step_seconds: float = 0.2, count: int = 6, batch: int = 64, **fields: Any
) -> list[StepWindow]:
    """Return a warm-up, then windows of 50 steps each, one of which includes an evaluation."""
    common: dict[str, Any] = {"gpus": 4, "workers": 4, "start": "a", "testbed": V100S, **fields}
    samples = 50 * batch * common["workers"]
    warmup = StepWindow(10, samples / 5, 30.0, 3.0, warmup=True, **common)
    return [
        warmup,
        *(
            StepWindow(
                50, samples, 50 * step_seconds + 20 * (i == 1), step_seconds, at=1.8e9 + i, **common
            )
            for i in range(count)
        ),
    ]


def test_a_start_is_measured_without_warm_up_and_evaluation() -> None:
    (run,) = build_job_runs(reports(), RESNET, job="u", handle="local://17")
    assert run.samples_per_second == pytest.approx(256 / 0.2)
    assert run.clock_samples_per_second == pytest.approx(300 * 256 / 80)
    assert (run.gpus, run.workers, run.batch_per_worker, run.steps) == (4, 4, 64, 300)
    assert (run.warmup_steps, run.warmup_seconds) == (10, 30)
    assert run.low == run.high == run.samples_per_second
    assert run.created_at.startswith("2027-01-15")
    assert run.doubt is None
    assert run.spec["model"] == "resnet50"


def test_each_start_beyond_its_warm_up_is_one_run() -> None:
    windows = [
        *reports(),
        *reports(0.1, start="b", gpus=8, workers=8),
        *reports(count=0, start="c"),
    ]
    assert [run.gpus for run in build_job_runs(windows, RESNET)] == [4, 8]


def test_a_run_is_stored_once(tmp_path: Path) -> None:
    store = ResultsStore(tmp_path / "results.sqlite")
    assert len(add_new_runs(store, build_job_runs(reports(), RESNET, job="u"))) == 1
    assert add_new_runs(store, build_job_runs(reports(), RESNET, job="u")) == []
    assert len(add_new_runs(store, build_job_runs(reports(), RESNET, job="v"))) == 1
    without_start = build_job_runs(reports(start=""), RESNET)
    assert add_new_runs(store, without_start) == without_start
    assert add_new_runs(store, build_job_runs(reports(start=""), RESNET)) == []


def test_a_run_can_be_read_from_a_store_and_an_export(tmp_path: Path) -> None:
    runs = build_job_runs(reports(), RESNET, job="u")
    store = ResultsStore(tmp_path / "results.sqlite")
    add_new_runs(store, runs)
    (tmp_path / "export.jsonl").write_text(to_json_lines(runs))
    assert read_results([store.path]).select(JobRun) == runs
    assert read_results([store.path, tmp_path / "export.jsonl"]).select(JobRun) == runs


def test_many_windows_are_merged() -> None:
    (run,) = build_job_runs(reports(count=1001), RESNET)
    assert len(run.windows) <= MAX_WINDOWS
    assert sum(window.steps for window in run.windows) == run.steps == 1001 * 50


@pytest.mark.parametrize(
    ("windows", "fragment"),
    [
        (reports(0.0002), "v100-sxm2-16gb"),
        ([*reports(0.2, 4), *reports(0.4, 4)], "100%"),
        ([*reports(0.2, 0), StepWindow(3, 768, 0.6, 0.2, start="a")], "3 steps"),
    ],
)
def test_doubtful_runs_have_their_reason(windows: list[StepWindow], fragment: str) -> None:
    assert fragment in str(build_job_runs(windows, RESNET)[-1].doubt)


def test_a_job_without_a_testbed_ran_on_an_unknown_machine() -> None:
    (run,) = build_job_runs(reports(testbed=None), RESNET)
    assert (run.device, run.provenance.is_known, run.provenance.cpu_model) == (
        "cpu",
        False,
        "unknown",
    )
    data = build_calibration_rows([run], [])
    assert data.rows == ()
    (note,) = data.notes
    assert note.startswith("1 run")


def test_runs_on_one_machine_are_rows_of_a_calibration() -> None:
    one_gpu = reports(0.19, gpus=1, workers=1, start="b")
    runs = build_job_runs([*reports(), *one_gpu, *reports(nodes=2, start="c")], RESNET)
    data = build_calibration_rows(runs, [])
    assert data.measurements == tuple(runs[:2])
    four_gpus, single_gpu = data.rows
    assert four_gpus.hardware == single_gpu.hardware == Hardware("cuda", "v100-sxm2-16gb", 4)
    assert (four_gpus.workers, four_gpus.batch_per_worker, four_gpus.step_seconds) == (4, 64, 0.2)
    assert (four_gpus.busy_seconds, four_gpus.all_reduce_seconds) == (None, None)
    assert single_gpu.busy_seconds == 0.19
    assert "several machines" in data.notes[0]


def test_a_users_own_model_has_no_profile() -> None:
    own = Workload(name="own", model="my_net:make")
    assert "my_net:make" in build_calibration_rows(build_job_runs(reports(), own), []).notes[0]


def test_job_runs_are_enough_for_a_calibration() -> None:
    shapes = [(1, 32), (1, 64), (2, 64), (4, 64), (4, 32)]
    runs = build_job_runs(
        [
            window
            for gpus, batch in shapes
            for window in reports(
                (0.02 + batch * 0.0034) * (1 + 0.02 * (gpus - 1)),
                batch=batch,
                gpus=gpus,
                workers=gpus,
                start=f"{gpus}-{batch}",
            )
        ],
        RESNET,
    )
    rows = build_calibration_rows(runs, [])
    (done,), refused = calibrate(rows.rows, rows.links)
    assert refused == []
    assert done.errors.mean_after < 0.03 < done.errors.mean_before
    assert done.lines[0].seconds_per_sample == pytest.approx(0.0034, rel=0.1)


def test_a_log_without_a_report_is_an_error(cli: Cli, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("epoch 1\n")
    error = cli("results", "add", str(log), "--workload", "resnet50", status=2).stderr
    assert str(log) in error and "gpuyard.step()" in error
    log.write_text('gpuyard-steps: {"steps": 10, "samples": 1, "seconds": 1, "warmup": true}\n')
    error = cli("results", "add", str(log), "--workload", "resnet50", status=2).stderr
    assert str(log) in error and "warm" in error
    error = cli("results", "add", str(log), "--workload", "resnet5", status=2).stderr
    assert "resnet5" in error


def test_a_log_needs_its_workload(cli: Cli, tmp_path: Path) -> None:
    assert "--workload" in cli("results", "add", str(tmp_path), status=2).stderr
    assert "local://17" in cli("results", "add", "local://17", status=2).stderr


def test_predictions_follow_from_job_runs(cli: Cli, tmp_path: Path) -> None:
    """A log is added to the store and used in a calibration, which changes the next prediction."""
    lines = [
        {
            "start": f"{gpus}-{batch}", "gpus": gpus, "steps": 50, "samples": 50 * batch * gpus, "seconds": 50 * seconds,
            "testbed": {**V100S, "host": "node7"},
        }
        for gpus, batch, seconds in ((1, 32, 0.13), (1, 64, 0.24), (2, 64, 0.245), (4, 64, 0.25))
        for _ in range(3)
    ]  # fmt: skip
    log = tmp_path / "log"
    log.write_text("".join(f"gpuyard-steps: {json.dumps(line)}\n" for line in lines))
    command = (
        "predict",
        "resnet50",
        "--on",
        "1x4xv100-sxm2-16gb",
        "--gpus",
        "4",
        "--batch",
        "64",
        "--json",
    )

    def predict() -> float:
        return float(json.loads(cli(*command).stdout)["predictions"][0]["samples_per_second"])

    before = predict()
    cli("results", "add", str(log), "--workload", "resnet50")
    cli("calibrate")
    assert abs(predict() / 1024 - 1) < 0.05 < abs(before / 1024 - 1)
