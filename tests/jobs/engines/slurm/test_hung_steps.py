"""A job on several nodes starts again if one of them dies unnoticed by Slurm, and keeps the exit status of its command."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from gpuyard.jobs.engines.slurm import request
from gpuyard.jobs.engines.slurm.script import program
from gpuyard.jobs.engines.slurm.script.launch import NodeWatch
from gpuyard.jobs.engines.slurm.script.task_directory import FINISHED, NOT_STARTED, TaskDirectory
from gpuyard.jobs.job import Handle
from gpuyard.slurm import client
from tests.jobs.engines.slurm.conftest import FAST, Yard, create_yard, until
from tests.jobs.engines.slurm.test_faults import SavedState, kill_controller, start_controller
from tests.jobs.engines.slurm.test_recovery import number_of, until_requeued
from tests.slurm_cluster import slurm_cluster

# The batch script's own srun waits, so that the test can copy Slurm's state before it knows the step.
SRUN = """\
#!/bin/sh
touch {directory}/srun-waits
until test -e {directory}/srun-goes; do sleep 0.1; done
exec {srun} "$@"
"""
SILENCE_SECONDS = 20
COMMAND = "echo $$ >> ran-$NODE_RANK; test -e go && exit 0; exec sleep 3000"


@pytest.fixture
def faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Yard]:
    hasty = program().replace(
        "MAX_SILENCE_SECONDS = 300.0", f"MAX_SILENCE_SECONDS = {SILENCE_SECONDS}"
    )
    assert hasty != program()
    monkeypatch.setattr(request, "program", lambda: hasty)
    with slurm_cluster(3, FAST) as slurm, create_yard(slurm, tmp_path, monkeypatch) as yard:
        monkeypatch.setattr(client, "TIMEOUT_SECONDS", 60.0)
        yield yard


def hold_srun(yard: Yard) -> None:
    program = shutil.which("srun", path="/usr/bin:/usr/local/bin") or pytest.skip("srun not found")
    path = yard.directory.parent / "programs" / "srun"
    path.write_text(SRUN.format(directory=yard.directory, srun=program))
    path.chmod(0o755)


def wait_until_saved(yard: Yard, handle: Handle) -> SavedState:
    """Copy the controller's state after it has saved the job's start."""
    saved = yard.slurm.configuration.parent / "state" / "job_state"
    now = time.time()
    client.run("scontrol", "update", f"JobId={number_of(handle)}", "AdminComment=saved")
    until(lambda: saved.stat().st_mtime > now, lambda: "Slurm has saved the running job")
    return SavedState(yard, handle)


def kill_node_processes(yard: Yard, node: str) -> None:
    """Kill the job's processes on a node and the daemons of their steps, but not the node's daemon."""
    for process, _ in yard.slurm.processes():
        with suppress(psutil.Error):
            parent = process.parent()
            if process.environ().get("SLURMD_NODENAME") == node:
                if parent is not None and parent.name() == "slurmstepd":
                    parent.kill()
                process.kill()


@pytest.mark.soak
def test_a_job_whose_node_died_unnoticed_starts_again(faulty: Yard) -> None:
    """A restored controller does not know the step, so srun never hears that a part of it is gone."""
    hold_srun(faulty)
    handle = faulty.submit("sh", "-c", COMMAND, gpus=2, nodes=2)
    until((faulty.directory / "srun-waits").exists, lambda: str(faulty.status(handle)))
    saved = wait_until_saved(faulty, handle)
    (faulty.directory / "srun-goes").touch()
    for rank in (0, 1):
        faulty.read_file(f"ran-{rank}")
    second = faulty.until(handle, "running").nodes[1]
    kill_controller(faulty)
    saved.restore()
    start_controller(faulty)
    kill_node_processes(faulty, second)
    (faulty.directory / "go").touch()
    until_requeued(handle, lambda: faulty.status(handle).final)
    status = faulty.status(handle)
    assert (status.state, status.restarts) == ("succeeded", 1), (status, faulty.output(handle))
    for rank in (0, 1):
        assert len(faulty.read_file(f"ran-{rank}").split()) == 2


@pytest.fixture
def task_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TaskDirectory:
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    return TaskDirectory(str(tmp_path / "job"), "token")


def test_only_a_node_that_stops_showing_signs_of_life_is_silent(
    task_directory: TaskDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    task_directory.create_signs_of_life("17-0", 4)
    watch = NodeWatch(task_directory, "17-0", ["begins-late", "finished", "works", "unwatched"])
    task_directory.show_life("17-0", 1, FINISHED)
    task_directory.remove("17-0.alive-3")

    def poll(seconds: float, *, works: bool) -> str | None:
        nonlocal now
        silent = None
        for _ in range(int(seconds / 2)):
            now += 2.0
            if works:
                task_directory.show_life("17-0", 2, now)
            silent = silent or watch.find_silent()
        return silent

    assert poll(800, works=True) is None
    task_directory.show_life("17-0", 0, 5.0)
    assert poll(200, works=False) is None
    now += 100_000.0  # The whole job was suspended.
    assert poll(80, works=False) is None
    task_directory.show_life("17-0", 0, 6.0)
    assert poll(100, works=False) == "works"
    task_directory.remove_signs_of_life("17-0", 4)
    assert not list(Path(os.fsdecode(task_directory.path)).glob("*alive*"))


def test_a_node_whose_part_never_starts_is_silent_after_a_longer_time(
    task_directory: TaskDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    task_directory.create_signs_of_life("17-0", 1)
    assert task_directory.read_sign_of_life("17-0", 0) == NOT_STARTED
    watch, polls = NodeWatch(task_directory, "17-0", ["node1"]), 0
    while watch.find_silent() is None:
        now += 2.0
        polls += 1
    assert 400 < polls < 500


@pytest.fixture
def node_program(tmp_path: Path, task_directory: TaskDirectory) -> list[str]:
    """The command that srun starts on a node, for a job whose command is in `command`."""
    document = {
        "argv": ["sh", str(tmp_path / "command")],
        "cwd": str(tmp_path),
        "environment": {},
        "directory": os.fsdecode(task_directory.path),
        "gpus_per_node": 1,
        "checkpoint": None,
    }
    text = f"{program()}\n\nmain({document!r}, sys.argv[1:], __file__)\n"
    (tmp_path / "script.py").write_text(text)
    node_job = {
        "nodes": ["node1", "node2"],
        "first": 0,
        "rendezvous": {"addresses": ["::1", "::1"], "port": 1, "id": "x", "start": "17-0"},
        "token": "token",
    }
    return [sys.executable, "-I", str(tmp_path / "script.py"), "node", json.dumps(node_job)]


def start_node(node_program: list[str]) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "SLURM_PROCID": "0", "SLURM_JOB_ID": "17"}
    return subprocess.Popen(node_program, env=environment, stdout=subprocess.DEVNULL)


def test_a_node_keeps_the_status_of_its_command_while_srun_stops_it(
    node_program: list[str], tmp_path: Path
) -> None:
    """After a failure, srun terminates the other nodes, which may also be about to exit."""
    (tmp_path / "command").write_text("exit 3")
    process = start_node(node_program)
    failed = tmp_path / "job" / "17-0.failed-0"
    until(failed.exists, lambda: "the failure is recorded")
    while process.poll() is None:
        process.send_signal(signal.SIGTERM)
        time.sleep(0.001)
    assert process.returncode == 3


def test_a_command_that_slurm_stops_has_not_failed(node_program: list[str], tmp_path: Path) -> None:
    """Slurm's signal may reach the script after the command."""
    (tmp_path / "command").write_text("echo $$ > pid; exec sleep 300")
    process = start_node(node_program)
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), lambda: "it runs")
    pid = int((tmp_path / "pid").read_text())
    os.kill(pid, signal.SIGTERM)
    until(lambda: not psutil.pid_exists(pid), lambda: "the command has ended")
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 128 + signal.SIGTERM
    assert not (tmp_path / "job" / "17-0.failed-0").exists()
