"""Faults that Slurm notices late: lost nodes, killed ranks on several nodes, and time limits."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.jobs.engines.slurm import records
from gpuyard.jobs.job import Handle
from gpuyard.slurm import client
from tests.jobs.engines.slurm.conftest import FAST, Yard, create_yard, until
from tests.slurm_cluster import slurm_cluster

pytestmark = pytest.mark.soak

LOOP = """\
import os, pathlib, time
import torch.distributed as dist
import torch
dist.init_process_group("gloo")
rank = dist.get_rank()
again = pathlib.Path("again").exists()
pathlib.Path(f"rank{rank}").write_text(f"{os.getpid()}\\n")
while not again:
    dist.all_reduce(torch.zeros(1))
    time.sleep(0.05)
dist.barrier()  # a rank that leaves while another still connects breaks its start
print("rank", rank, "is done", flush=True)
dist.destroy_process_group()
"""
CHECKPOINTS = """\
import pathlib, signal, sys, time
def end(*_):
    pathlib.Path("checkpoint").write_text("half\\n")
    sys.exit(0)
signal.signal(signal.SIGUSR2, end)
if pathlib.Path("checkpoint").exists():
    print("continues from", pathlib.Path("checkpoint").read_text())
else:
    time.sleep(600)
"""


@pytest.fixture
def faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Yard]:
    with slurm_cluster(4, FAST) as slurm, create_yard(slurm, tmp_path, monkeypatch) as yard:
        yield yard


def hurry(yard: Yard, handle: Handle) -> None:
    """Start a requeued job now; Slurm would let it wait for two minutes."""
    number = records.find(handle)[0].submissions[-1].number
    client.run("scontrol", "update", f"JobId={number}", "StartTime=now")


def test_a_start_that_slurm_wrongly_takes_for_lost_exits_before_the_next(faulty: Yard) -> None:
    alone = ("flock", "--nonblock", "one.lock", "sh", "-c")
    handle = faulty.submit(
        *alone, "echo $SLURMD_NODENAME >> ran; until test -e go; do sleep 0.1; done"
    )
    first = faulty.read_file("ran").strip()
    faulty.slurm.find_daemon("slurmd", "-D", "-N", first).kill()  # Its jobs continue.
    until(
        lambda: faulty.status(handle).restarts == 1, lambda: str(faulty.status(handle)), seconds=1
    )
    assert faulty.status(handle).state == "queued"
    hurry(faulty, handle)
    until(lambda: len(faulty.read_file("ran").split()) == 2, lambda: str(faulty.status(handle)))
    assert faulty.read_file("ran").split()[1] != first, faulty.slurm.run("sinfo", "--Node").stdout
    assert faulty.until(handle, "running").restarts == 1
    (faulty.directory / "go").touch()
    status = faulty.wait(handle)
    assert (status.state, status.restarts, len(status.logs)) == ("succeeded", 1, 2)


def test_a_rank_killed_on_one_of_two_nodes_restarts_all_ranks(faulty: Yard) -> None:
    (faulty.directory / "train.py").write_text(LOOP)
    handle = faulty.submit("torchrun", "train.py", gpus=2, nodes=2)
    pids = [int(faulty.read_file(f"rank{rank}")) for rank in (0, 1)]
    (faulty.directory / "again").touch()
    killed = faulty.slurm.run("kill", "-9", str(pids[1]))
    assert killed.returncode == 0, killed.stderr
    status = faulty.wait(handle)
    assert (status.state, status.restarts) == ("succeeded", 1), faulty.output(handle)
    first, second = (Path(log).read_text() for log in status.logs)
    assert "is done" not in first
    assert second.count("is done") == 2


def test_a_failed_srun_is_not_taken_for_a_failed_command(faulty: Yard) -> None:
    """The next start of a killed job finds one of its nodes without a daemon."""
    command = "echo $$ >> ran-$NODE_RANK; test -e go && exit 0; exec sleep 300"
    handle = faulty.submit("sh", "-c", command, gpus=2, nodes=2)
    pids = [faulty.read_file(f"ran-{rank}").strip() for rank in (0, 1)]
    (faulty.directory / "go").touch()
    second = faulty.until(handle, "running").nodes[1]
    faulty.slurm.find_daemon("slurmd", "-D", "-N", second).kill()
    assert faulty.slurm.run("kill", "-9", *pids).returncode == 0
    until(
        lambda: faulty.status(handle).state == "queued",
        lambda: str(faulty.status(handle)),
        seconds=1,
    )
    hurry(faulty, handle)
    status = faulty.wait(handle)
    assert (status.state, status.exit_status) == ("succeeded", 0), status.reason
    assert "Task launch" in faulty.output(handle)


def test_time_limits(faulty: Yard) -> None:
    (faulty.directory / "train.py").write_text(CHECKPOINTS)
    checkpoint = {"command": ["touch", "asked"], "signal": "SIGUSR2", "time": "5 s"}
    goes_on = faulty.submit(
        "python3", "train.py", checkpoint=checkpoint, slurm={"walltime": "1 min"}
    )
    too_long = faulty.submit("sleep", "600", time_limit="1 min")
    (faulty.directory / "other").mkdir()
    stops = faulty.submit(
        "python3", "../train.py", cwd=str(faulty.directory / "other"),
        checkpoint=checkpoint, time_limit="1 min",
    )  # fmt: skip
    assert faulty.read_file("checkpoint") == "half\n"
    assert (faulty.directory / "asked").exists()
    until(
        lambda: faulty.status(goes_on).restarts == 1, lambda: str(faulty.status(goes_on)), seconds=1
    )
    until(lambda: faulty.status(goes_on).state == "queued", lambda: str(faulty.status(goes_on)))
    hurry(faulty, goes_on)
    status = faulty.wait(goes_on)
    assert (status.state, status.restarts) == ("succeeded", 1)
    assert "continues from half" in faulty.output(goes_on)
    status = faulty.wait(stops)
    assert (status.state, status.exit_status, status.restarts) == ("failed", 124, 0)
    assert "checkpoint" in status.reason
    status = faulty.wait(too_long)
    assert (status.state, "time limit" in status.reason) == ("failed", True)
