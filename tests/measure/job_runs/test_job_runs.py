"""What a job reports becomes a measurement: once for each start, with what speaks against it."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpuyard.catalog.specfiles import read_workload
from gpuyard.measure import ResultsStore, read_results, to_json_lines
from gpuyard.measure.calibration import calibration_rows
from gpuyard.measure.job_runs.records import JobRun
from gpuyard.measure.job_runs.summary import MOST_WINDOWS, job_runs, keep
from gpuyard.predict.calibration.calibrate import calibrate
from gpuyard.predict.calibration.rows import Hardware
from gpuyard.specs import Workload
from gpuyard.steps.windows import StepWindow
from tests.conftest import Cli

RESNET = read_workload("resnet50")
V100S = {
    "gpuyard": "0.1.0", "torch": "2.13.0", "python": "3.11", "os": "Debian", "kernel": "6.1", "host": "n1",
    "cpu_model": "Xeon", "cores": 40, "memory_bytes": 1, "threads_per_worker": 1,
    "gpus": ("Tesla V100-SXM2-16GB",) * 4,
}  # fmt: skip


def reports(
    step_seconds: float = 0.2, count: int = 6, batch: int = 64, **said: Any
) -> list[StepWindow]:
    """A warm-up, then windows of 50 steps each, in one of which an evaluation ran."""
    same: dict[str, Any] = {"gpus": 4, "workers": 4, "start": "a", "testbed": V100S, **said}
    each = 50 * batch * same["workers"]
    slow = StepWindow(10, each / 5, 30.0, 3.0, warmup=True, **same)
    return [
        slow,
        *(
            StepWindow(
                50, each, 50 * step_seconds + 20 * (i == 1), step_seconds, at=1.8e9 + i, **same
            )
            for i in range(count)
        ),
    ]


def test_a_start_is_one_measurement_without_warm_up_and_evaluation() -> None:
    (run,) = job_runs(reports(), RESNET, job="u", handle="local://17")
    assert run.samples_per_second == pytest.approx(256 / 0.2)
    assert run.clock_samples_per_second == pytest.approx(300 * 256 / 80)
    assert (run.gpus, run.workers, run.batch_per_worker, run.steps) == (4, 4, 64, 300)
    assert (run.warmup_steps, run.warmup_seconds) == (10, 30)
    assert run.low == run.high == run.samples_per_second
    assert run.created_at.startswith("2027-01-15")
    assert run.doubt is None
    assert run.spec["model"] == "resnet50"


def test_each_start_is_one_and_one_that_did_not_warm_up_is_none() -> None:
    seen = [*reports(), *reports(0.1, start="b", gpus=8, workers=8), *reports(count=0, start="c")]
    assert [run.gpus for run in job_runs(seen, RESNET)] == [4, 8]


def test_a_run_is_kept_once(tmp_path: Path) -> None:
    store = ResultsStore(tmp_path / "results.sqlite")
    assert len(keep(store, job_runs(reports(), RESNET, job="u"))) == 1
    assert keep(store, job_runs(reports(), RESNET, job="u")) == []
    assert len(keep(store, job_runs(reports(), RESNET, job="v"))) == 1
    other = job_runs(reports(start=""), RESNET)
    assert keep(store, other) == other
    assert keep(store, job_runs(reports(start=""), RESNET)) == []


def test_a_store_and_its_export_hold_it(tmp_path: Path) -> None:
    runs = job_runs(reports(), RESNET, job="u")
    store = ResultsStore(tmp_path / "results.sqlite")
    keep(store, runs)
    (tmp_path / "export.jsonl").write_text(to_json_lines(runs))
    assert read_results([store.path]).of(JobRun) == runs
    assert read_results([store.path, tmp_path / "export.jsonl"]).of(JobRun) == runs


def test_a_month_of_windows_is_joined() -> None:
    (run,) = job_runs(reports(count=1001), RESNET)
    assert len(run.windows) <= MOST_WINDOWS
    assert sum(window.steps for window in run.windows) == run.steps == 1001 * 50


@pytest.mark.parametrize(
    ("windows", "why"),
    [
        (reports(0.0002), "more than v100-sxm2-16gb's peak can do"),
        ([*reports(0.2, 4), *reports(0.4, 4)], "differ by 100 %"),
        ([*reports(0.2, 0), StepWindow(3, 768, 0.6, 0.2, start="a")], "only 3 steps"),
    ],
)
def test_what_is_not_credible_is_marked(windows: list[StepWindow], why: str) -> None:
    assert why in str(job_runs(windows, RESNET)[-1].doubt)


def test_a_job_that_does_not_say_where_it_ran_is_of_an_unknown_machine() -> None:
    (run,) = job_runs(reports(testbed=None), RESNET)
    assert (run.device, run.provenance.known, run.provenance.cpu_model) == ("cpu", False, "unknown")
    found = calibration_rows([run], [])
    assert (found.rows, found.notes) == (
        (),
        ("1 run is left out: the job did not say what it ran on",),
    )


def test_runs_on_one_machine_are_rows_of_a_calibration() -> None:
    alone = reports(0.19, gpus=1, workers=1, start="b")
    runs = job_runs([*reports(), *alone, *reports(nodes=2, start="c")], RESNET)
    found = calibration_rows(runs, [])
    assert found.measurements == tuple(runs[:2])
    four, one = found.rows
    assert four.hardware == one.hardware == Hardware("cuda", "v100-sxm2-16gb", 4)
    assert (four.workers, four.batch_per_worker, four.step_seconds) == (4, 64, 0.2)
    assert (four.busy_seconds, four.all_reduce_seconds) == (None, None)
    assert one.busy_seconds == 0.19
    assert "on several machines" in found.notes[0]


def test_a_model_of_ones_own_has_no_profile() -> None:
    own = Workload(name="own", model="my_net:make")
    assert (
        "keeps no profile of my_net:make" in calibration_rows(job_runs(reports(), own), []).notes[0]
    )


def test_a_calibration_learns_from_jobs_alone() -> None:
    shapes = [(1, 32), (1, 64), (2, 64), (4, 64), (4, 32)]
    made = job_runs(
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
    rows = calibration_rows(made, [])
    (done,), refused = calibrate(rows.rows, rows.links)
    assert refused == []
    assert done.errors.mean_after < 0.03 < done.errors.mean_before
    assert done.lines[0].seconds_per_sample == pytest.approx(0.0034, rel=0.1)


def test_a_log_that_has_no_report_is_a_sentence(cli: Cli, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("epoch 1\n")
    said = cli("results", "add", str(log), "--workload", "resnet50", status=2).stderr
    assert "no report of gpuyard.step()" in said
    log.write_text('gpuyard-steps: {"steps": 10, "samples": 1, "seconds": 1, "warmup": true}\n')
    said = cli("results", "add", str(log), "--workload", "resnet50", status=2).stderr
    assert "ended before it had warmed up" in said
    assert (
        "no workload file"
        in cli("results", "add", str(log), "--workload", "resnet5", status=2).stderr
    )


def test_a_log_needs_its_workload(cli: Cli, tmp_path: Path) -> None:
    assert "Name it with --workload" in cli("results", "add", str(tmp_path), status=2).stderr
    assert "local://17" in cli("results", "add", "local://17", status=2).stderr


def test_a_prediction_is_what_jobs_have_shown(cli: Cli, tmp_path: Path) -> None:
    """From a log to the store, to a calibration, to the next prediction."""
    said = [
        {
            "start": f"{gpus}-{batch}", "gpus": gpus, "steps": 50, "samples": 50 * batch * gpus, "seconds": 50 * seconds,
            "testbed": {**V100S, "host": "node7"},
        }
        for gpus, batch, seconds in ((1, 32, 0.13), (1, 64, 0.24), (2, 64, 0.245), (4, 64, 0.25))
        for _ in range(3)
    ]  # fmt: skip
    log = tmp_path / "log"
    log.write_text("".join(f"gpuyard-steps: {json.dumps(line)}\n" for line in said))
    asked = (
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

    def predicted() -> float:
        return float(json.loads(cli(*asked).stdout)["predictions"][0]["samples_per_second"])

    before = predicted()
    cli("results", "add", str(log), "--workload", "resnet50")
    cli("calibrate")
    assert abs(predicted() / 1024 - 1) < 0.05 < abs(before / 1024 - 1)
