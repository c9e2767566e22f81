"""Slurm's daemons are killed again and again while jobs run: no finished job runs again, and no job is lost."""

import random
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from gpuyard.errors import GpuyardError
from gpuyard.jobs.engines.slurm import records
from gpuyard.jobs.engines.slurm.starts import read_starts
from gpuyard.jobs.job import Handle
from gpuyard.slurm import client
from tests.jobs.engines.slurm.conftest import FAST, Yard, create_yard
from tests.slurm_cluster import slurm_cluster

pytestmark = pytest.mark.soak

NODES, JOBS, FAULTS, SEEDS = 3, 30, 20, (27, 28)
CRASH_SHARE = 0.5
END_SECONDS = 1500.0
COMMAND = "sleep $1; exit $2"


@pytest.fixture
def yard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Yard]:
    with slurm_cluster(NODES, FAST) as slurm, create_yard(slurm, tmp_path, monkeypatch) as yard:
        monkeypatch.setattr(client, "TIMEOUT_SECONDS", 60.0)
        yield yard


def find_daemons(yard: Yard, name: str, *words: str) -> list[psutil.Process]:
    return [
        process
        for process, command in yard.slurm.processes()
        if command and Path(command[0]).name == name and set(words) <= set(command)
    ]


def find_node_processes(yard: Yard, node: str) -> list[psutil.Process]:
    """Find the jobs on a node and the daemons of their steps."""
    processes = []
    for process, _ in yard.slurm.processes():
        with suppress(psutil.Error):
            parent = process.parent()
            if process.environ().get("SLURMD_NODENAME") == node:
                is_step = parent is not None and parent.name() == "slurmstepd"
                processes += [process, *([parent] if parent and is_step else [])]
    return processes


def kill_and_restart(yard: Yard, rng: random.Random) -> None:
    """Kill the controller, the daemon of a node, or a whole node; start the daemons again after a while."""
    node = f"node{rng.randint(1, NODES)}"
    controller, daemon_of_node = ("slurmctld",), ("slurmd", "-N", node)
    faults: list[tuple[tuple[str, ...], ...]] = [
        (controller,),
        (daemon_of_node,),
        (controller, daemon_of_node),
    ]
    daemons = rng.choice(faults)
    crashes = daemon_of_node in daemons and rng.random() < CRASH_SHARE
    victims = [process for daemon in daemons for process in find_daemons(yard, *daemon)]
    for process in victims + (find_node_processes(yard, node) if crashes else []):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    time.sleep(rng.uniform(0.0, 4.0))
    for daemon in daemons:
        assert yard.slurm.run(*daemon).returncode == 0


def hurry(yard: Yard) -> None:
    """Start requeued jobs now, and return nodes to service that failed while their daemon was dead."""
    for status in yard.engine.list():
        if status.final:
            continue
        with suppress(GpuyardError):
            number = records.find(status.handle)[0].submissions[-1].number
            client.run("scontrol", "update", f"JobId={number}", "StartTime=now")
    with suppress(GpuyardError):
        client.run("scontrol", "update", f"NodeName=node[1-{NODES}]", "State=RESUME")


def count_starts_after_the_end(handle: Handle) -> int:
    """Count the starts after one that recorded a result."""
    starts = read_starts(records.find(handle)[0].directory)
    ends = [n for n, start in enumerate(starts, 1) if start.final_state in ("succeeded", "failed")]
    return len(starts) - min(ends)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_finished_job_runs_again_and_no_job_is_lost(yard: Yard, seed: int) -> None:
    rng = random.Random(seed)
    expected: dict[Handle, tuple[str, int]] = {}
    for number in range(JOBS):
        exit_status = 3 if number % 6 == 5 else 0
        argv = ("sh", "-c", COMMAND, "sh", f"{rng.uniform(0.1, 10.0):.2f}", str(exit_status))
        shape = {"gpus": 2, "nodes": 1 + (number % 5 == 4)}
        handle = yard.submit(*argv, name=f"job-{number}", retries={"lost": 50}, **shape)
        expected[handle] = ("failed" if exit_status else "succeeded", exit_status)
    for _ in range(FAULTS):
        time.sleep(rng.uniform(0.5, 4.0))
        kill_and_restart(yard, rng)
        yard.engine.list()
    deadline = time.monotonic() + END_SECONDS
    statuses = {status.handle: status for status in yard.engine.list()}
    while not all(status.final for status in statuses.values()):
        assert time.monotonic() < deadline, [s for s in statuses.values() if not s.final]
        hurry(yard)
        time.sleep(2.0)
        statuses = {status.handle: status for status in yard.engine.list()}
    for handle, (state, exit_status) in expected.items():
        status = statuses[handle]
        assert (status.state, status.exit_status) == (state, exit_status), status
        assert count_starts_after_the_end(handle) == 0, status
    assert any(status.restarts for status in statuses.values()), "no fault hit a running job"
