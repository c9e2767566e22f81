"""kill -9 at random moments: whatever was finished can be read, and nothing that is half done stays."""

import json
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from gpuyard import lab, paths
from gpuyard.measure import Measurement, ResultsStore
from tests.conftest import MakeMeasurement
from tests.lab.conftest import namespaces
from tests.soak.killing import Yard

pytestmark = pytest.mark.soak

KILLS = 10
GPUYARD = (sys.executable, "-m", "gpuyard")
MODEL = """\
import torch
from torch import nn


def forgetful():
    return nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 4))


def learnable():
    inputs = torch.randn(2000, 16, generator=torch.Generator().manual_seed(7))
    return torch.utils.data.TensorDataset(inputs, inputs[:, :4].argmax(1))
"""
WORKLOAD = """\
name: own
model: own_model:forgetful
batch_per_gpu: 8
dataset: {samples: 2000, source: 'own_model:learnable'}
input: {shape: [16]}
target: {classes: 4}
"""
STUDY = """\
name: A study
workloads: [own.workload.yaml]
measure: {workers: [1, 2], batch: [4, 8], time_per_point: 300 ms}
clusters: [{cluster: dgx-a100, gpus: [1, 8]}]
"""
WRITER = """
import sys
from pathlib import Path
from gpuyard.measure import Measurement, ResultsStore
store = ResultsStore(Path(sys.argv[1]))
plain = Measurement.model_validate_json(sys.argv[2])
for number in range(100_000):
    name = f"{sys.argv[3]}-{number}"
    store.add(plain.model_copy(update={"id": name}))
    print(name, flush=True)
"""


@pytest.fixture
def yard(home: Path, tmp_path: Path) -> Yard:
    project = tmp_path / "project"
    project.mkdir()
    (project / "own_model.py").write_text(MODEL)
    (project / "own.workload.yaml").write_text(WORKLOAD)
    (project / "own.study.yaml").write_text(STUDY)
    return Yard(home, project)


def seconds_of(yard: Yard, *arguments: str) -> float:
    began = time.monotonic()
    yard.run(*arguments)
    return time.monotonic() - began


def temporary_files(yard: Yard) -> list[str]:
    return sorted(path.name for path in yard.project.iterdir() if path.name.startswith("gpuyard-"))


def test_a_store_has_every_run_that_was_said_to_be_kept(
    yard: Yard, make_measurement: MakeMeasurement
) -> None:
    file = paths.results_file()
    document = make_measurement().model_dump_json()
    said: list[str] = []
    for number in range(KILLS):
        writer = (sys.executable, "-c", WRITER, str(file), document, str(number))
        said += yard.kill(*writer, within_seconds=4).splitlines()
        kept = (
            {run.id for run in ResultsStore(file).records(Measurement)} if file.exists() else set()
        )
        assert set(said) <= kept
        assert len(kept) <= len(said) + number + 1  # at most one a kill was kept and not yet said
    assert said, "no writer lived long enough"
    with closing(sqlite3.connect(file)) as store:
        assert store.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_training_that_is_killed_again_and_again_ends_with_the_same_weights(yard: Yard) -> None:
    def train(checkpoint: str) -> tuple[str, ...]:
        settings = ("--workers", "2", "--batch", "10", "--accuracy", "99.99 %", "--json")
        file = ("--checkpoint", checkpoint, "--epochs", "60")
        return ("train", "own.workload.yaml", *settings, *file)

    def end(checkpoint: str) -> list[dict[str, object]]:
        """What each epoch came to. Nobody expects all of it to be learnt."""
        with yard.start(*GPUYARD, *train(checkpoint)) as process:
            out, err = process.communicate()
        assert process.returncode in (0, 1), err
        epochs = json.loads(out)["epochs"]
        differ = {"seconds", "restored"}
        return [{k: v for k, v in epoch.items() if k not in differ} for epoch in epochs]

    began = time.monotonic()
    whole = end("whole.npz")
    seconds = time.monotonic() - began
    for _ in range(KILLS):
        yard.kill(*GPUYARD, *train("killed.npz"), within_seconds=seconds)
        assert not temporary_files(yard)
    assert end("killed.npz") == whole
    assert not list(yard.project.glob(".*npz*"))


def test_a_study_that_is_killed_keeps_what_it_measured_and_writes_its_report_whole(
    yard: Yard,
) -> None:
    study = ("study", "own.study.yaml", "--output", "out")
    began = time.monotonic()
    Yard(yard.home / "other", yard.project).run(*study[:-1], "first")
    seconds = time.monotonic() - began
    store = ResultsStore(paths.results_file())
    kept: set[str] = set()
    for _ in range(KILLS):
        yard.kill(*GPUYARD, *study, within_seconds=seconds)
        assert not temporary_files(yard)
        now = {run.id for run in store.records(Measurement)} if store.path.exists() else set()
        assert kept <= now
        kept = now
        for written in (yard.project / "out").glob("*"):
            assert written.name in ("study.json", "report.html")
            text = written.read_text(encoding="utf-8")
            assert text.rstrip().endswith("</html>" if written.suffix == ".html" else "}")
    yard.run(*study)
    (workload,) = json.loads((yard.project / "out" / "study.json").read_text())["workloads"]
    assert {run["measurement_id"] for run in workload["measured"]} >= kept
    assert len(workload["measured"]) == 4


@pytest.mark.parametrize(
    "arguments",
    [
        ("lab", "up", "--nodes", "30", "--link", "100Mbit"),
        ("bench", "collectives", "--lab", "2x100Mbit", "--bytes", "1MB", "--repeats", "1"),
    ],
    ids=["up", "bench"],
)
def test_a_lab_whose_maker_is_killed_is_removed_by_the_next_command(
    yard: Yard, arguments: tuple[str, ...], can_make_labs: None
) -> None:
    before = namespaces()
    seconds = seconds_of(yard, *arguments)
    if arguments[1] == "up":
        yard.run("lab", "down")
    for _ in range(KILLS):
        yard.kill(*GPUYARD, *arguments, within_seconds=seconds)
        if any(health == "up" for _, health in lab.labs()):
            yard.run("lab", "down")  # it was made whole before the kill
        assert json.loads(yard.run("lab", "status", "--json")) == []
        assert namespaces() <= before
        assert not temporary_files(yard)


def test_a_bench_of_storage_leaves_no_data_that_the_next_one_does_not_remove(yard: Yard) -> None:
    disk = yard.project / "disk"
    disk.mkdir()
    mine = disk / "mine.bin"
    mine.write_bytes(b"mine")
    settings = ("--gpus", "1", "--size", "64MB", "--time-per-point", "1 s")
    bench = ("bench", "storage", str(disk), "--model", "resnet18", *settings)
    seconds = seconds_of(yard, *bench)
    for _ in range(KILLS):
        yard.kill(*GPUYARD, *bench, within_seconds=seconds)
    yard.run(*bench)
    assert list(disk.iterdir()) == [mine]
