"""A Slurm that breaks while ranks train in its allocation: one sentence, and no rank is left behind."""

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
# what salloc runs: how the command ended is known before Slurm is asked to take the nodes back
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
    """A cluster of two nodes whose parts are killed while a bench is in its allocation."""

    slurm: SlurmCluster
    yard: Yard

    def kill_controller(self) -> None:
        self.slurm.daemon("slurmctld", "-D").kill()

    def restart_controller(self) -> None:
        assert self.slurm.run("slurmctld").returncode == 0

    def kill_node(self, name: str) -> None:
        """All that runs on it: Slurm's daemon, that of the step, and its rank."""
        on_it = [p for p in self.yard.processes() if p.environ().get("SLURMD_NODENAME") == name]
        above = [p.parent() for p in on_it]
        steps = [p for p in above if p is not None and p.name() == "slurmstepd"]
        assert steps
        for process in (self.slurm.daemon("slurmd", "-D", "-N", name), *steps, *on_it):
            process.kill()

    def touch(self, name: str) -> None:
        (self.yard.project / name).touch()

    def wait_for(self, name: str) -> str:
        """Until the file is there; what is in it."""
        path = self.yard.project / name
        until(path.exists, f"{name} is there")
        time.sleep(0.1)  # it may just be written
        return path.read_text(encoding="utf-8")


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.05)


@pytest.fixture
def faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Faulty]:
    yard = Yard(tmp_path / "own-home", tmp_path)  # the daemons have that of the tests
    (tmp_path / "own_model.py").write_text(MODEL)
    (tmp_path / "own.workload.yaml").write_text(WORKLOAD)
    monkeypatch.chdir(tmp_path)
    with slurm_cluster(2) as slurm:
        yield Faulty(slurm, yard)


@contextmanager
def in_an_allocation(faulty: Faulty) -> Iterator[None]:
    """The bench waits for the file `start`, its ranks for `go`."""
    allocate = ("salloc", "--quiet", "--nodes=2", "sh", "-c", SCRIPT, "sh")
    with ThreadPoolExecutor(1) as elsewhere:
        environment = faulty.yard.environment
        asked = elsewhere.submit(
            faulty.slurm.run, *allocate, *BENCH, *OPTIONS, environment=environment
        )
        try:
            faulty.wait_for("allocated")
            yield
        finally:
            for name in ("start", "go"):
                faulty.touch(name)
            asked.result()


def test_a_node_that_dies_is_told_and_takes_no_rank_with_it_that_stays(faulty: Faulty) -> None:
    with in_an_allocation(faulty):
        faulty.touch("start")
        for rank in range(2):
            faulty.wait_for(f"rank{rank}-trains")
        faulty.kill_node("node2")
        faulty.touch("go")  # the other rank trains on, and waits for gradients
        assert faulty.wait_for("status") == "1\n"
    said = faulty.wait_for("stderr")
    assert "Traceback" not in said
    assert "rank 0 of 2 has lost its connection to another rank" in said
    assert not faulty.wait_for("stdout")
    until(lambda: not list(faulty.yard.processes()), "no rank is left")


def test_ranks_outlive_a_controller_that_dies_and_are_measured(faulty: Faulty) -> None:
    with in_an_allocation(faulty):
        faulty.touch("start")
        for rank in range(2):
            faulty.wait_for(f"rank{rank}-trains")
        faulty.kill_controller()
        faulty.touch("go")
        status = faulty.wait_for("status")
        faulty.restart_controller()  # salloc has to give its nodes back to somebody
    said = faulty.wait_for("stderr")
    assert status == "0\n", said
    assert json.loads(faulty.wait_for("stdout"))[0]["place"]["nodes"] == ["node1", "node2"]
    until(lambda: not list(faulty.yard.processes()), "no rank is left")


def test_a_controller_that_does_not_answer_is_told_before_anything_starts(faulty: Faulty) -> None:
    with in_an_allocation(faulty):
        faulty.kill_controller()
        faulty.touch("start")
        assert faulty.wait_for("status") == "1\n"
        faulty.restart_controller()
    said = faulty.wait_for("stderr")
    assert "scontrol ping" in said
    assert said.startswith("gpuyard: ")
    assert not list(faulty.yard.project.glob("*-trains"))
    assert not list(faulty.yard.processes())
