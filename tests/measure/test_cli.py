"""`gpuyard bench train` and `gpuyard results` as a user or a script calls them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from gpuyard import files
from gpuyard.catalog.specfiles import read_workload
from gpuyard.cli.measure import bench, results
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.training.records import Measurement
from gpuyard.measure.validity import NAN_LOSS
from gpuyard.workloads import profile_model

Make = Callable[..., Measurement]

WORKLOAD = """
name: tiny
model: tiny_models:classifier
batch_per_gpu: 8
"""


@pytest.fixture
def workload_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    path = tmp_path / "tiny.workload.yaml"
    path.write_text(WORKLOAD)
    monkeypatch.chdir(tmp_path)
    return str(path)


def test_importing_the_commands_is_cheap() -> None:
    heavy = "import sys, gpuyard.cli.measure.bench, gpuyard.cli.measure.results; print(sorted({'torch', 'numpy', 'pydantic'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", heavy], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


def test_train_measures_and_results_show_it(workload_file: str) -> None:
    arguments = ["train", workload_file, "--workers", "1", "--time-per-point", "0.1 s", "--json"]
    planned = CliRunner().invoke(bench.app, [*arguments, "--dry-run"])
    (point,) = json.loads(planned.stdout)["points"]
    assert (point["batch_per_worker"], point["stored"]) == (8, False)
    assert not files.results_file().exists()

    measured = CliRunner().invoke(bench.app, arguments, catch_exceptions=False)
    (document,) = json.loads(measured.stdout)
    assert document["key"] == point["key"]
    assert document["samples_per_second"] > 0

    planned = CliRunner().invoke(bench.app, [*arguments, "--dry-run"])
    assert json.loads(planned.stdout)["points"][0]["stored"]
    shown = CliRunner().invoke(results.app, ["show", document["id"][:6], "--json"])
    assert json.loads(shown.stdout) == document
    table = CliRunner().invoke(results.app, ["show", document["id"]])
    assert "exposed communication" in table.stdout
    listed = CliRunner().invoke(results.app, ["list"])
    assert document["id"] in listed.stdout


def test_a_doubtful_run_is_reported_and_a_loss_that_is_not_a_number_is_an_error(
    workload_file: str, make_measurement: Make
) -> None:
    arguments = ["train", workload_file, "--workers", "1"]
    planned = CliRunner().invoke(bench.app, [*arguments, "--json", "--dry-run"])
    (point,) = json.loads(planned.stdout)["points"]
    store = ResultsStore(files.results_file())
    store.add(make_measurement(1, key=point["key"], workers=1, doubt="windows differ"))
    warned = CliRunner().invoke(bench.app, arguments, catch_exceptions=False)
    assert warned.exit_code == 0
    assert "000000000001" in warned.stderr
    assert "windows differ" in warned.stderr
    assert "windows differ" in CliRunner().invoke(results.app, ["list"]).stdout

    store.add(make_measurement(2, key=point["key"], workers=1, doubt=NAN_LOSS))
    failed = CliRunner().invoke(bench.app, arguments)
    assert isinstance(failed.exception, GpuyardError)
    assert "the loss was not a number" in str(failed.exception)


def test_a_doubtful_run_does_not_choose_the_remedies_of_a_relief(
    workload_file: str, make_measurement: Make
) -> None:
    alone = ["train", workload_file, "--workers", "1", "--time-per-point", "2 s"]
    planned = CliRunner().invoke(bench.app, [*alone, "--json", "--dry-run"])
    (point,) = json.loads(planned.stdout)["points"]
    arguments = ["relief", workload_file, "--dry-run", "--json"]
    profile = profile_model(read_workload(workload_file))
    run = make_measurement(1, key=point["key"], workers=1, batch_per_worker=8, profile=profile)
    store = ResultsStore(files.results_file())
    store.add(run)
    chosen = CliRunner().invoke(bench.app, arguments, catch_exceptions=False)
    assert len(json.loads(chosen.stdout)["predicted_speed_ups"]) == 1  # none is worth it: plain DDP
    store.add(run.model_copy(update={"id": "d0", "doubt": "windows differ"}))
    warned = CliRunner().invoke(bench.app, arguments, catch_exceptions=False)
    assert len(json.loads(warned.stdout)["predicted_speed_ups"]) > 1
    assert "windows differ" in warned.stderr


def test_bad_worker_counts_are_rejected(workload_file: str) -> None:
    with pytest.raises(
        UserMistake,
        match="worker count: expected whole numbers like 1,2,4 or 1-8, got 'two' in '1,two'",
    ):
        CliRunner().invoke(
            bench.app, ["train", workload_file, "--workers", "1,two"], catch_exceptions=False
        )


def test_export_round_trip(tmp_path: Path, make_measurement: Make) -> None:
    store = ResultsStore(files.results_file())
    measurements = [make_measurement(1), make_measurement(2)]
    for measurement in measurements:
        store.add(measurement)
    printed = CliRunner().invoke(results.app, ["export"])
    lines = printed.stdout.splitlines()
    assert [Measurement.model_validate_json(line) for line in lines] == measurements
    file = tmp_path / "results.csv"
    written = CliRunner().invoke(results.app, ["export", "--as", "csv", "--output", str(file)])
    assert written.stdout == ""
    assert "2 measurements written" in written.stderr
    assert len(file.read_text().splitlines()) == 3


def test_an_empty_store_suggests_how_to_measure() -> None:
    listed = CliRunner().invoke(results.app, ["list"])
    assert listed.exit_code == 0
    assert "gpuyard bench train" in listed.output
    assert json.loads(CliRunner().invoke(results.app, ["list", "--json"]).stdout) == []


def test_ctrl_c_reports_that_finished_results_are_kept(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gpuyard", "bench", "train", "spoken-digits-linear"]
    with subprocess.Popen(
        [*command, "--workers", "1", "--batch", "10", "--time-per-point", "60 s"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "GPUYARD_HOME": str(tmp_path)},
    ) as process:
        deadline = time.monotonic() + 60
        while not psutil.Process(process.pid).children():  # until its rank runs
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "gpuyard: stopped" in stderr
