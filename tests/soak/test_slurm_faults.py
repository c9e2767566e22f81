"""If Slurm fails while ranks train in its allocation, gpuyard reports it in one line and leaves no rank behind."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.slurm_cluster import SlurmCluster, slurm_cluster
from tests.soak.killing import Yard

pytestmark = pytest.mark.soak

MODEL = """\
import os
import time
from pathlib import Path
from torch import nn


class Waiting(nn.Linear):
    def __init__(self):
        super().__init__(16, 4)

    def forward(self, inputs):
        if "RANK" in os.environ:
            Path(f"rank{os.environ['RANK']}-trains").touch()
            # rank 0 may run it once alone, before the ranks meet
            while all(Path(f"rank{n}-trains").exists() for n in (0, 1)) and not Path("go").exists():
                time.sleep(0.02)
        return super().forward(inputs)
"""
WORKLOAD = "{name: own, model: 'own_model:Waiting', input: {shape: [16]}, target: {classes: 4}}"
# salloc runs this script, which records the exit status before Slurm releases the nodes
SCRIPT = """\
touch allocated
while [ ! -e start ]; do sleep 0.1; done
"$@" > stdout 2> stderr
echo $? > status
"""
BENCH = (sys.executable, "-m", "gpuyard", "bench", "train", "own.workload.yaml", "--slurm")
OPTIONS = ("--workers=2", "--batch=8", "--time-per-point=0.2 s", "--json")
WAIT_SECONDS = 120.0


@dataclass(frozen=True)
class Faulty:
    """A cluster of two nodes whose daemons are killed while a benchmark runs in its allocation."""

    slurm: SlurmCluster
    yard: Yard

    def kill_controller(self) -> None:
        self.slurm.find_daemon("slurmctld", "-D").kill()

    def restart_controller(self) -> None:
        assert self.slurm.run("slurmctld").returncode == 0

    def kill_node(self, name: str) -> None:
        """Kill everything on the node: Slurm's daemon, the step's daemon, and the rank."""
        node_processes = [
            p for p in self.yard.processes() if p.environ().get("SLURMD_NODENAME") == name
        ]
        parents = [p.parent() for p in node_processes]
        steps = [p for p in parents if p is not None and p.name() == "slurmstepd"]
        assert steps
        for process in (
            self.slurm.find_daemon("slurmd", "-D", "-N", name),
            *steps,
            *node_processes,
        ):
            process.kill()

    def touch(self, name: str) -> None:
        (self.yard.project / name).touch()

    def wait_for(self, name: str) -> str:
        """Wait until the file exists and return its content."""
        path = self.yard.project / name
        until(path.exists, f"{name} exists")
        time.sleep(0.1)  # it may still be incomplete
        return path.read_text(encoding="utf-8")


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"timed out waiting until {what}"
        time.sleep(0.05)


@pytest.fixture
def faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Faulty]:
    yard = Yard(tmp_path / "own-home", tmp_path)  # the daemons have the home of the tests
    (tmp_path / "own_model.py").write_text(MODEL)
    (tmp_path / "own.workload.yaml").write_text(WORKLOAD)
    monkeypatch.chdir(tmp_path)
    with slurm_cluster(2) as slurm:
        yield Faulty(slurm, yard)


@contextmanager
def run_in_allocation(faulty: Faulty) -> Iterator[None]:
    """Start a benchmark that waits for the file `start`; its ranks wait for `go`."""
    allocate = ("salloc", "--quiet", "--nodes=2", "sh", "-c", SCRIPT, "sh")
    with ThreadPoolExecutor(1) as executor:
        environment = faulty.yard.environment
        allocation = executor.submit(
            faulty.slurm.run, *allocate, *BENCH, *OPTIONS, environment=environment
        )
        try:
            faulty.wait_for("allocated")
            yield
        finally:
            for name in ("start", "go"):
                faulty.touch(name)
            allocation.result()


def test_a_dead_node_is_reported_and_no_rank_remains(faulty: Faulty) -> None:
    with run_in_allocation(faulty):
        faulty.touch("start")
        for rank in range(2):
            faulty.wait_for(f"rank{rank}-trains")
        faulty.kill_node("node2")
        faulty.touch("go")  # the other rank continues and waits for gradients
        assert faulty.wait_for("status") == "1\n"
    stderr = faulty.wait_for("stderr")
    assert "Traceback" not in stderr
    assert "rank 0 of 2 lost its connection" in stderr
    assert not faulty.wait_for("stdout")
    until(lambda: not list(faulty.yard.processes()), "no rank is left")


def test_ranks_survive_a_dead_controller_and_are_measured(faulty: Faulty) -> None:
    with run_in_allocation(faulty):
        faulty.touch("start")
        for rank in range(2):
            faulty.wait_for(f"rank{rank}-trains")
        faulty.kill_controller()
        faulty.touch("go")
        status = faulty.wait_for("status")
        faulty.restart_controller()  # salloc needs a controller to release its nodes
    stderr = faulty.wait_for("stderr")
    assert status == "0\n", stderr
    assert json.loads(faulty.wait_for("stdout"))[0]["place"]["nodes"] == ["node1", "node2"]
    until(lambda: not list(faulty.yard.processes()), "no rank is left")


def test_an_unreachable_controller_is_reported_before_anything_starts(faulty: Faulty) -> None:
    with run_in_allocation(faulty):
        faulty.kill_controller()
        faulty.touch("start")
        assert faulty.wait_for("status") == "1\n"
        faulty.restart_controller()
    stderr = faulty.wait_for("stderr")
    assert "scontrol ping" in stderr
    assert stderr.startswith("gpuyard: ")
    assert not list(faulty.yard.project.glob("*-trains"))
    assert not list(faulty.yard.processes())
