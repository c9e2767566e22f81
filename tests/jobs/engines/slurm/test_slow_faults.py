"""Faults that Slurm takes its time to notice: nodes, ranks of several nodes, time that is over."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.jobs.engines.slurm import commands, records
from gpuyard.jobs.job import Handle
from tests.jobs.engines.slurm.conftest import SOON, Yard, a_yard, until
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
    print("goes on from", pathlib.Path("checkpoint").read_text())
else:
    time.sleep(600)
"""


@pytest.fixture
def faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Yard]:
    with slurm_cluster(4, SOON) as slurm, a_yard(slurm, tmp_path, monkeypatch) as yard:
        yield yard


def hurry(yard: Yard, handle: Handle) -> None:
    """Slurm lets what it queues again wait for two minutes."""
    number = records.find(handle)[0].submissions[-1].number
    commands.ask("scontrol", "update", f"JobId={number}", "StartTime=now")


def test_a_start_that_slurm_takes_for_lost_ends_before_the_next_begins(faulty: Yard) -> None:
    alone = ("flock", "--nonblock", "one.lock", "sh", "-c")
    handle = faulty.submit(
        *alone, "echo $SLURMD_NODENAME >> ran; until test -e go; do sleep 0.1; done"
    )
    first = faulty.file("ran").strip()
    faulty.slurm.daemon("slurmd", "-D", "-N", first).kill()  # what it started goes on
    until(
        lambda: faulty.status(handle).restarts == 1, lambda: str(faulty.status(handle)), seconds=1
    )
    assert faulty.status(handle).state == "queued"
    hurry(faulty, handle)
    until(lambda: len(faulty.file("ran").split()) == 2, lambda: str(faulty.status(handle)))
    assert faulty.file("ran").split()[1] != first, faulty.slurm.run("sinfo", "--Node").stdout
    assert faulty.until(handle, "running").restarts == 1
    (faulty.directory / "go").touch()
    status = faulty.ended(handle)
    assert (status.state, status.restarts, len(status.logs)) == ("succeeded", 1, 2)


def test_a_rank_that_is_killed_on_one_of_two_nodes_starts_all_of_them_again(faulty: Yard) -> None:
    (faulty.directory / "train.py").write_text(LOOP)
    handle = faulty.submit("torchrun", "train.py", gpus=2, nodes=2)
    inside = [int(faulty.file(f"rank{rank}")) for rank in (0, 1)]
    (faulty.directory / "again").touch()
    killed = faulty.slurm.run("kill", "-9", str(inside[1]))
    assert killed.returncode == 0, killed.stderr
    status = faulty.ended(handle)
    assert (status.state, status.restarts) == ("succeeded", 1), faulty.printed(handle)
    first, second = (Path(log).read_text() for log in status.logs)
    assert "is done" not in first
    assert second.count("is done") == 2


def test_time_that_is_over(faulty: Yard) -> None:
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
    assert faulty.file("checkpoint") == "half\n"
    assert (faulty.directory / "asked").exists()
    until(
        lambda: faulty.status(goes_on).restarts == 1, lambda: str(faulty.status(goes_on)), seconds=1
    )
    until(lambda: faulty.status(goes_on).state == "queued", lambda: str(faulty.status(goes_on)))
    hurry(faulty, goes_on)
    status = faulty.ended(goes_on)
    assert (status.state, status.restarts) == ("succeeded", 1)
    assert "goes on from half" in faulty.printed(goes_on)
    status = faulty.ended(stops)
    assert (status.state, status.exit_status, status.restarts) == ("failed", 124, 0)
    assert status.reason == "its time was over, and it was asked to write a checkpoint and end"
    status = faulty.ended(too_long)
    assert (status.state, status.reason) == ("failed", "its time limit was over")
