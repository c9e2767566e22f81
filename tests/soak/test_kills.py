"""After SIGKILL at random times, finished work can be read and nothing incomplete remains."""

import contextlib
import hashlib
import http.server
import json
import os
import sqlite3
import sys
import threading
import time
from pathlib import Path

import pytest

from gpuyard import files, lab
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.training.records import Measurement
from tests.conftest import MakeMeasurement
from tests.lab.conftest import namespaces
from tests.security.test_downloads import pack_recordings
from tests.soak.killing import Yard
from tests.workloads.test_digit_clips import write_wav

pytestmark = pytest.mark.soak

KILLS = int(os.environ.get("SOAK_KILLS", "34"))  # of each of the seven, 204 without storage
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
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.training.records import Measurement
store = ResultsStore(Path(sys.argv[1]))
plain = Measurement.model_validate_json(sys.argv[2])
for number in range(100_000):
    name = f"{sys.argv[3]}-{number}"
    store.add(plain.model_copy(update={"id": name}))
    print(name, flush=True)
"""

FETCH = """
import sys
from gpuyard import files
from gpuyard.workloads.digit_clips import fetch_clips
target = files.dataset_directory("spoken-digits")
fetch_clips(target, url=sys.argv[1], schemes=("http",), sha256=sys.argv[2])
"""


@pytest.fixture
def yard(home: Path, tmp_path: Path) -> Yard:
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "tmp").mkdir()
    (project / "own_model.py").write_text(MODEL)
    (project / "own.workload.yaml").write_text(WORKLOAD)
    (project / "own.study.yaml").write_text(STUDY)
    return Yard(home, project)


def measure_seconds(yard: Yard, *arguments: str) -> float:
    start = time.monotonic()
    yard.run(*arguments)
    return time.monotonic() - start


def list_leftovers_after(yard: Yard, *arguments: str) -> list[str]:
    """Run the next command and list what remains of the killed ones."""
    yard.run(*(arguments or ("catalog", "links")))
    return yard.leftovers()


def test_a_store_has_every_run_that_was_reported_as_stored(
    yard: Yard, make_measurement: MakeMeasurement
) -> None:
    file = files.results_file()
    document = make_measurement().model_dump_json()
    reported: list[str] = []
    for number in range(KILLS):
        writer = (sys.executable, "-c", WRITER, str(file), document, str(number))
        reported += yard.kill(*writer, within_seconds=4).splitlines()
        kept = (
            {run.id for run in ResultsStore(file).records(Measurement)} if file.exists() else set()
        )
        assert set(reported) <= kept
        assert (
            len(kept) <= len(reported) + number + 1
        )  # per kill, at most one run was stored but not yet reported
    assert reported, "no writer lived long enough"
    with contextlib.closing(sqlite3.connect(file)) as store:
        assert store.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert list_leftovers_after(yard, "results", "list", "--json") == []
    assert {path.name for path in yard.home.iterdir()} == {file.name}


def test_a_training_that_is_killed_again_and_again_ends_with_the_same_weights(yard: Yard) -> None:
    def train(checkpoint: str) -> tuple[str, ...]:
        settings = ("--workers", "2", "--batch", "10", "--accuracy", "99.99%", "--json")
        file = ("--checkpoint", checkpoint, "--epochs", "60")
        return ("train", "own.workload.yaml", *settings, *file)

    def end(checkpoint: str) -> list[dict[str, object]]:
        """Finish the training and return its epochs; the accuracy need not be reached."""
        with yard.start(*GPUYARD, *train(checkpoint)) as process:
            out, err = process.communicate()
        assert process.returncode in (0, 1), err
        epochs = json.loads(out)["epochs"]
        differ = {"seconds", "restored"}
        return [{k: v for k, v in epoch.items() if k not in differ} for epoch in epochs]

    start = time.monotonic()
    whole = end("whole.npz")
    seconds = time.monotonic() - start
    for _ in range(KILLS):
        yard.kill(*GPUYARD, *train("killed.npz"), within_seconds=seconds)
        assert list_leftovers_after(yard, *train("killed.npz"), "--dry-run") == []
    assert end("killed.npz") == whole
    assert yard.leftovers() == []


def test_a_study_that_is_killed_keeps_what_it_measured_and_writes_its_report_whole(
    yard: Yard,
) -> None:
    study = ("study", "own.study.yaml", "--output-dir", "out")
    start = time.monotonic()
    Yard(yard.home / "other", yard.project).run(*study[:-1], "first")
    seconds = time.monotonic() - start
    store = ResultsStore(files.results_file())
    kept: set[str] = set()
    for _ in range(KILLS):
        yard.kill(*GPUYARD, *study, within_seconds=seconds)
        now = {run.id for run in store.records(Measurement)} if store.path.exists() else set()
        assert kept <= now
        kept = now
        there = ("train", "own.workload.yaml", "--dry-run", "--checkpoint", "out/c.npz")
        assert list_leftovers_after(yard, *(there if (yard.project / "out").exists() else ())) == []
        for written in (yard.project / "out").glob("*"):
            assert written.name in ("study.json", "report.html")
            text = written.read_text(encoding="utf-8")
            assert text.rstrip().endswith("</html>" if written.suffix == ".html" else "}")
    yard.run(*study)
    (workload,) = json.loads((yard.project / "out" / "study.json").read_text())["workloads"]
    assert {run["measurement_id"] for run in workload["measured"]} >= kept
    assert len(workload["measured"]) == 4


class _SlowHandler(http.server.BaseHTTPRequestHandler):
    """Send the archive in many pieces, so that most kills happen during the transfer."""

    archive = b""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.archive)))
        self.end_headers()
        piece = len(self.archive) // 50 + 1
        for begin in range(0, len(self.archive), piece):
            self.wfile.write(self.archive[begin : begin + piece])
            time.sleep(0.02)

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):
            super().handle()

    def log_message(self, *_: object) -> None:
        pass


def test_a_fetch_that_is_killed_leaves_the_dataset_as_it_was_or_as_it_is(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two releases take turns: there is always one of them, whole, and nothing else."""
    releases: list[dict[str, bytes]] = []
    for samples in (4000, 5000):
        clips = yard.project / str(samples)
        clips.mkdir()
        names = [f"{digit}_theo_{index}.wav" for digit in range(10) for index in range(30)]
        releases.append({name: write_wav(clips / name, samples).read_bytes() for name in names})
    archives = [pack_recordings(release) for release in releases]
    target = files.dataset_directory("spoken-digits")
    fetched = 0
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _SlowHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}/"

        def fetch(turn: int) -> tuple[str, ...]:
            monkeypatch.setattr(_SlowHandler, "archive", archives[turn])
            return (sys.executable, "-c", FETCH, address, _sha256(releases[turn]))

        start = time.monotonic()
        with yard.start(*fetch(0)) as process:
            assert process.communicate()[1] == ""
        seconds = time.monotonic() - start
        for kill in range(1, KILLS + 1):
            yard.kill(*fetch(kill % 2), within_seconds=1.5 * seconds)
            assert list_leftovers_after(yard) == []
            assert list(target.parent.iterdir()) == [target]
            there = {path.name: path.read_bytes() for path in target.iterdir()}
            assert there in releases, "a part of a release"
            fetched += there == releases[kill % 2]
        server.shutdown()
    assert fetched, "no fetch lived long enough"


def _sha256(release: dict[str, bytes]) -> str:
    listed = (f"{hashlib.sha256(release[n]).hexdigest()}  {n}\n" for n in sorted(release))
    return hashlib.sha256("".join(listed).encode()).hexdigest()


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
    seconds = measure_seconds(yard, *arguments)
    if arguments[1] == "up":
        yard.run("lab", "down")
    for _ in range(KILLS):
        yard.kill(*GPUYARD, *arguments, within_seconds=seconds)
        if any(health == "up" for _, health in lab.labs()):
            yard.run("lab", "down")  # it was complete before the kill
        assert json.loads(yard.run("lab", "status", "--json")) == []
        assert namespaces() <= before
        assert yard.leftovers() == []


def test_a_bench_of_storage_leaves_no_data_that_the_next_one_does_not_remove(yard: Yard) -> None:
    disk = yard.project / "disk"
    disk.mkdir()
    mine = disk / "mine.bin"
    mine.write_bytes(b"mine")
    settings = ("--gpus", "1", "--size", "64MB", "--time-per-point", "1 s")
    bench = ("bench", "storage", str(disk), "--model", "resnet18", *settings)
    seconds = measure_seconds(yard, *bench)
    for _ in range(KILLS):
        yard.kill(*GPUYARD, *bench, within_seconds=seconds)
    yard.run(*bench)
    assert list(disk.iterdir()) == [mine]
    assert yard.leftovers() == []
