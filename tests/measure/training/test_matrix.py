"""Sweep files: every combination is measured and stored, and runs that are not valid are rejected."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuyard.catalog.specfiles import read_sweep
from gpuyard.errors import SpecError
from gpuyard.measure.registry import get_result_kind
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.training import matrix, run
from gpuyard.measure.training.matrix import find_valid_run, plan_matrix, run_matrix
from gpuyard.measure.training.records import Measurement, Rejection, Window
from gpuyard.measure.training.sweep import SweepEvent
from gpuyard.report.answers.results import records_answer
from gpuyard.table import Table
from tests.conftest import MakeMeasurement

ROOT = Path(__file__).parents[3]
SWEEP = """
name: tiny
workloads: [tiny.workload.yaml]
nodes: [1]
batch: [4, 8]
remedy: [{}, {accumulate: 2}]
repeats: 2
time_per_point: 100 ms
"""
WORKLOAD = "{name: tiny, model: 'tiny_models:classifier'}"


@pytest.fixture
def sweep_file(tmp_path: Path) -> Path:
    (tmp_path / "tiny.workload.yaml").write_text(WORKLOAD)
    path = tmp_path / "tiny.sweep.yaml"
    path.write_text(SWEEP)
    return path


def test_every_combination_has_its_own_key(sweep_file: Path) -> None:
    planned = plan_matrix(read_sweep(sweep_file), sweep_file.parent)
    keys = [point.key for sweep in planned.sweeps for point in sweep.points]
    assert planned.points == len(keys) == len(set(keys)) == 8
    assert [(s.remedy.label, s.repeat) for s in planned.sweeps] == [
        ("plain", 0),
        ("plain", 1),
        ("accumulate 2", 0),
        ("accumulate 2", 1),
    ]


def test_rejected_runs_are_stored_with_their_reason_and_repeated(
    sweep_file: Path, store: ResultsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SelectiveCredibility:
        """Rejects the first run of batch 8 and every run of batch 16."""

        rejected_keys: set[str] = set()  # noqa: RUF012

        def __init__(self, *_: object) -> None: ...

        def __call__(self, measurement, _foreign):  # type: ignore[no-untyped-def]
            if measurement.batch_per_worker == 16:
                return "never"
            if measurement.batch_per_worker == 8 and measurement.key not in self.rejected_keys:
                self.rejected_keys.add(measurement.key)
                return "not yet"
            return None

    for module in (matrix, run):
        monkeypatch.setattr(module, "ValidityCheck", SelectiveCredibility)
    single_launch = SWEEP.replace("repeats: 2", "repeats: 1").replace("[4, 8]", "[4, 8, 16]")
    sweep_file.write_text(single_launch.replace("[{}, {accumulate: 2}]", "[{}]"))
    monkeypatch.chdir(sweep_file.parent)
    planned = plan_matrix(read_sweep(sweep_file), sweep_file.parent)
    events: list[SweepEvent] = []
    outcome = run_matrix(planned, store, on_event=events.append)
    assert [m.batch_per_worker for m in outcome.measurements] == [4, 8]
    assert [(p.batch_per_worker, reason) for _, p, reason in outcome.rejected] == [(16, "never")]
    assert sorted(m.key for m in store.records(Measurement)) == sorted(
        m.key for m in outcome.measurements
    )
    reasons = [r.reason for r in store.records(Rejection)]
    assert (reasons.count("not yet"), reasons.count("never")) == (1, 2)
    assert store.get(store.records(Rejection)[0].id) == store.records(Rejection)[0]
    answer = records_answer(get_result_kind("rejected"), store.records(Rejection))
    table = answer.parts[0]
    assert isinstance(table, Table)
    names = [getattr(column, "name", column) for column in table.columns]
    assert {row[names.index("strategy")] for row in table.rows} == {"ddp"}
    assert events[-1].progress.done == events[-1].progress.total == 3
    assert all((event.progress.remaining_seconds or 0) >= 0 for event in events)

    # a second run finds the stored measurements and repeats the rejected point
    second_events: list[SweepEvent] = []
    sweep_file.write_text(sweep_file.read_text() + "attempts: 1\n")
    second = plan_matrix(read_sweep(sweep_file), sweep_file.parent)
    run_matrix(second, store, on_event=second_events.append)
    assert sum(e.state == "stored" for e in second_events) == 2
    assert {e.point.key for e in second_events if e.state == "rejected"} == {
        point.key for _, point, _ in outcome.rejected
    }


def test_stored_runs_are_checked_before_they_are_used(
    sweep_file: Path, store: ResultsStore, make_measurement: MakeMeasurement
) -> None:
    """`bench train` stores every run; a sweep must not accept one whose loss is not a number."""
    planned = plan_matrix(read_sweep(sweep_file), sweep_file.parent)
    sweep = planned.sweeps[0]
    point, other = sweep.points
    even = (Window(steps=3, seconds=0.6, input_seconds=0.0),) * 2
    bad = make_measurement(1, key=point.key, windows=even, loss_first=2.5, loss_last=None)
    good = make_measurement(2, key=other.key, windows=even, loss_first=2.5, loss_last=1.0)
    store.add(bad)
    store.add(good)
    assert find_valid_run(store, sweep, point) is None
    assert find_valid_run(store, sweep, other) == good
    assert planned.find_stored_keys(store) == {other.key}


def test_a_killed_sweep_resumes(sweep_file: Path, home: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny.workload.yaml").write_text(
        "{name: tiny, model: 'tiny_models:WaitsAtBatch3', input: {shape: [16]}, target: {classes: 4}}"
    )
    sweep_file.write_text(
        "{name: t, workloads: [tiny.workload.yaml], nodes: [1], batch: [2, 3], attempts: 20,"
        " time_per_point: 100 ms}"
    )
    (tmp_path / "run.py").write_text(
        "from gpuyard.cli.main import main\n"
        "from gpuyard.measure.training import matrix, run\n"
        # the check for load from other programs would make this test depend on the machine
        "matrix.ValidityCheck = run.ValidityCheck = lambda *_: lambda *_: None\n"
        "main()\n"
    )
    store = ResultsStore(Path(os.environ["GPUYARD_HOME"]) / "results.sqlite")
    paths = [str(ROOT / "src"), str(Path(__file__).parents[1])]
    command = [sys.executable, "run.py", "bench", "sweep", str(sweep_file)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    sweeping = subprocess.Popen(
        command, env=environment, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 120
        while not store.records(Measurement):
            assert sweeping.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        sweeping.send_signal(signal.SIGKILL)
        sweeping.wait()
    (first,) = store.records(Measurement)
    assert first.batch_per_worker == 2
    (tmp_path / "go").touch()
    subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, check=True)
    assert [m.batch_per_worker for m in store.records(Measurement)] == [2, 3]
    assert store.records(Measurement)[0] == first


def test_examples_are_valid_and_errors_name_the_line(tmp_path: Path) -> None:
    slices = plan_matrix(read_sweep(ROOT / "examples" / "slices.sweep.yaml"), ROOT / "examples")
    assert slices.points == 36
    assert {s.place.dilation for s in slices.sweeps} == {2, 20}
    choke = plan_matrix(read_sweep(ROOT / "examples" / "choke.sweep.yaml"), ROOT / "examples")
    assert choke.points == 6
    wrong = tmp_path / "wrong.sweep.yaml"
    wrong.write_text("name: w\nworkloads: [resnet50]\nremedy: [{compress: fp8}]\nlink: [1 Gbit]\n")
    with pytest.raises(SpecError) as caught:
        read_sweep(wrong)
    assert "wrong.sweep.yaml:3: remedy[0].compress" in str(caught.value)
    assert "wrong.sweep.yaml:4: link[0]" in str(caught.value)
