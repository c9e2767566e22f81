"""A Slurm job with checkpoints grows and shrinks while it runs, and its loss continues unchanged."""

import contextlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from gpuyard.jobs.engines.slurm import records
from gpuyard.jobs.engines.slurm.script.nodes import RESIZE_FILE
from gpuyard.jobs.job import Handle
from gpuyard.slurm import client
from tests.command_line import ROOT
from tests.conftest import Cli
from tests.deploy.small_disk import fill, small_disk
from tests.jobs.engines.slurm.conftest import FAST, Yard, create_yard, until
from tests.slurm_cluster import slurm_cluster
from tests.soak.test_elastic_digits import clips

__all__ = ["clips"]
pytestmark = pytest.mark.soak
EXAMPLE = ROOT / "examples" / "elastic_digits.py"
_STEP = re.compile(r"step (\d+) loss (\d+\.\d+) workers (\d+)$", re.MULTILINE)
MACHINES = "4x4xt4@100G"


Rebalancing = Callable[[int, str], AbstractContextManager[Yard]]


@pytest.fixture
def rebalancing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> Rebalancing:
    """Start a Slurm with N nodes of 4 GPUs, these settings, and a policy that resizes jobs."""

    @contextmanager
    def start(nodes: int, settings: str) -> Iterator[Yard]:
        with (
            slurm_cluster(nodes, settings) as slurm,
            create_yard(slurm, tmp_path, monkeypatch) as yard,
        ):
            assert cli("queue", "policy", "min-time").returncode == 0
            yield yard

    return start


@pytest.fixture
def elastic(monkeypatch: pytest.MonkeyPatch, rebalancing: Rebalancing) -> Iterator[Yard]:
    """A cluster with 16 GPUs."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with rebalancing(4, FAST) as yard:
        yield yard


def fill_cluster(yard: Yard) -> tuple[Handle, Handle]:
    """Occupy three nodes with one job, and all but one GPU of the fourth with another."""
    large = yard.submit("sleep", "6000", gpus=12, nodes=3)
    small = yard.submit("sleep", "6000", gpus=3)
    yard.until(large, "running")
    yard.until(small, "running")
    return large, small


def example(clips: Path, steps: int) -> tuple[str, ...]:
    options = ("--model", "linear", "--batch", "12", "--steps", str(steps))
    return (str(EXAMPLE), "--data", str(clips), *options)


def train(yard: Yard, clips: Path, **keys: object) -> Handle:
    return yard.submit(
        "torchrun", *example(clips, 10**6), workload="spoken-digits-linear", samples=12_000_000, gpus="1..3",
        checkpoint={"directory": "checkpoints", "time": "120 s", "restart": "1 s"},
        slurm={"cluster": MACHINES}, **keys,
    )  # fmt: skip


def losses(yard: Yard, handle: Handle) -> dict[int, tuple[float, int]]:
    """Return the loss and the workers of each step; no step is skipped or repeated."""
    steps = _STEP.findall(yard.output(handle))
    assert [int(step) for step, _, _ in steps] == list(range(1, len(steps) + 1))
    return {int(step): (float(loss), int(workers)) for step, loss, workers in steps}


def until_steps(yard: Yard, handle: Handle, workers: int, after: int = 0) -> int:
    """Wait until N workers have done five steps after this one, and return the last step."""
    until(
        lambda: sum(w == workers for s, (_, w) in losses(yard, handle).items() if s > after) >= 5,
        lambda: f"steps of {workers} workers: {yard.output(handle)[-2000:]}",
        seconds=0.5,
    )
    return len(losses(yard, handle))


def until_growth_pays(cli: Cli, handle: Handle) -> None:
    """Wait until the job has reported enough steps for the policy to grow it."""
    until(
        lambda: rebalance(cli, "--dry-run") == {str(handle): (1, 3)},
        lambda: f"{handle} grows",
        seconds=1.0,
    )


def rebalance(cli: Cli, *options: str) -> dict[str, tuple[int, int]]:
    done = cli("queue", "rebalance", "--json", *options)
    assert done.returncode == 0, done.stderr
    resizes = json.loads(done.stdout)["resizes"]
    return {resize["job"]: (resize["gpus"], resize["new_gpus"]) for resize in resizes}


def test_a_job_grows_when_another_finishes_and_shrinks_when_one_is_submitted(
    elastic: Yard, cli: Cli, clips: Path
) -> None:
    large, small = fill_cluster(elastic)
    handle = train(elastic, clips)
    until_steps(elastic, handle, 1)
    assert rebalance(cli) == {}, "no GPU is free"
    elastic.engine.cancel(large)
    assert elastic.wait(large).state == "cancelled"
    until_growth_pays(cli, handle)

    assert rebalance(cli, "--dry-run") == {str(handle): (1, 3)}
    assert not (records.find(handle)[0].directory / RESIZE_FILE).exists()
    assert rebalance(cli) == {str(handle): (1, 3)}
    last = until_steps(elastic, handle, 3)
    status = elastic.status(handle)
    assert (status.state, status.gpus, status.restarts) == ("running", 3, 1)
    assert len(set(status.nodes)) == 3

    short = elastic.submit(
        "sh", "-c", "true", gpus=12, nodes=3, workload="spoken-digits-linear", samples=12
    )
    until(lambda: rebalance(cli) == {str(handle): (3, 1)}, lambda: "it makes room")
    assert elastic.wait(short).state == "succeeded"
    last = until_steps(elastic, handle, 1, after=last)
    status = elastic.status(handle)
    assert (status.gpus, status.restarts, len(status.logs)) == (1, 2, 3)

    for job in (handle, small):
        elastic.engine.cancel(job)
        assert elastic.wait(job).state == "cancelled"
    resized = losses(elastic, handle)
    alone = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1"),
            *example(clips, len(resized)),
            *("--checkpoint", str(elastic.directory / "alone")),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    uninterrupted = {int(step): float(loss) for step, loss, _ in _STEP.findall(alone.stdout)}
    assert {s: loss for s, (loss, _) in resized.items()} == pytest.approx(uninterrupted, rel=1e-3)
    until(lambda: client.run("squeue", "--noheader") == "", lambda: "no companion remains")


def test_lost_companion_nodes_cost_only_a_restart(elastic: Yard, cli: Cli, clips: Path) -> None:
    large, _ = fill_cluster(elastic)
    handle = train(elastic, clips)
    until_steps(elastic, handle, 1)
    elastic.engine.cancel(large)
    assert elastic.wait(large).state == "cancelled"
    until_growth_pays(cli, handle)
    assert rebalance(cli) == {str(handle): (1, 3)}
    until(lambda: elastic.status(handle).gpus == 3, lambda: str(elastic.status(handle)))
    (companion,) = records.find(handle)[0].directory.glob("companion-*.json")
    until(
        lambda: "workers 3" in elastic.output(handle), lambda: elastic.output(handle), seconds=0.5
    )
    client.cancel(companion.stem.removeprefix("companion-"))
    until(lambda: elastic.status(handle).restarts == 2, lambda: str(elastic.status(handle)))
    status = elastic.status(handle)
    assert (status.state, status.gpus) == ("running", 1)
    elastic.engine.cancel(handle)
    assert elastic.wait(handle).state == "cancelled"


def test_a_waiting_companion_is_canceled_with_its_job(elastic: Yard, cli: Cli, clips: Path) -> None:
    """Another job got the nodes first: the companion waits, and the job continues unchanged."""
    fill_cluster(elastic)
    handle = train(elastic, clips)
    until_steps(elastic, handle, 1)
    record = records.find(handle)[0]
    number = record.submissions[-1].number
    more = client.submit(
        str(record.script),
        record.read_environment(),
        *("--nodes=2", f"--dependency=after:{number}", "--no-requeue", "--hold"),
        f"--comment=gpuyard-companion:{record.job.uuid}",
        arguments=("companion", str(number)),
    )
    (record.directory / RESIZE_FILE).write_text(
        json.dumps({"number": number, "nodes": 3, "companion": str(more)}) + "\n"
    )
    done = until_steps(elastic, handle, 1, after=len(losses(elastic, handle)))
    assert done > 0, "it continues"
    assert elastic.status(handle).restarts == 0
    elastic.engine.cancel(handle)
    assert elastic.wait(handle).state == "cancelled"
    until(
        lambda: str(more) not in client.run("squeue", "--noheader", "--format=%i").split(),
        lambda: "the companion is gone",
    )


# A stand-in for torchrun, whose rank exits on a checkpoint request.
FAKE_TORCHRUN = """\
#!/usr/bin/env python3
import os, signal, subprocess, sys
if sys.argv[1:] == ["rank"]:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    while True:
        signal.pause()
print("nodes", os.environ["GPUYARD_NODES"], os.environ["SLURMD_NODENAME"], flush=True)
sys.exit(subprocess.Popen([sys.executable, __file__, "rank"]).wait())
"""


PREDICTED: dict[str, Any] = {"workload": "resnet50", "slurm": {"cluster": "2x4xt4@100G"}}


def elastic_job(yard: Yard) -> Handle:
    torchrun = yard.directory / "torchrun"
    torchrun.write_text(FAKE_TORCHRUN)
    torchrun.chmod(0o755)
    checkpoint = {"directory": "checkpoints", "time": "60 s", "restart": "1 s"}
    return yard.submit(
        str(torchrun), gpus="4..8", samples=10**9, checkpoint=checkpoint, **PREDICTED
    )


@pytest.mark.parametrize("allowed", [True, False])
def test_slurm_shrinks_the_job_itself_if_the_site_allows_it(
    rebalancing: Rebalancing, cli: Cli, allowed: bool
) -> None:
    with rebalancing(2, FAST if allowed else FAST.strip() + ",disable_job_shrink\n") as yard:
        handle = elastic_job(yard)
        until(lambda: yard.output(handle).count("nodes 2") == 2, lambda: yard.output(handle))
        short = yard.submit("true", gpus=4, samples=100, **PREDICTED)
        until(lambda: rebalance(cli) == {str(handle): (8, 4)}, lambda: "it makes room")
        until(lambda: yard.status(handle).restarts == 1, lambda: str(yard.status(handle)))
        if allowed:
            assert yard.wait(short).state == "succeeded"
            until(lambda: rebalance(cli) == {str(handle): (4, 8)}, lambda: "it grows again")
            until(lambda: yard.status(handle).restarts == 2, lambda: str(yard.status(handle)))
        else:
            answer = json.loads(cli("queue", "rebalance", "--json").stdout)
            assert answer["resizes"] == [], "the refused request is repeated"
            assert "shrink" in answer["kept"][0]["reason"]
        assert (yard.status(handle).state, yard.status(handle).gpus) == ("running", 8)
        yard.engine.cancel(handle)
        assert yard.wait(handle).state == "cancelled"
        assert not [*yard.directory.parent.rglob("*_resize.*")]


def test_a_full_disk_costs_neither_the_job_nor_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    with (
        small_disk(tmp_path / "disk", megabytes=8) as disk,
        slurm_cluster(2, FAST) as slurm,
        create_yard(slurm, tmp_path, monkeypatch) as yard,
    ):
        monkeypatch.setenv("GPUYARD_HOME", str(disk))
        assert cli("queue", "policy", "min-time").returncode == 0
        other = yard.submit("sleep", "6000", gpus=4)
        yard.until(other, "running")
        handle = elastic_job(yard)
        until(lambda: "nodes 1" in yard.output(handle), lambda: yard.output(handle))
        yard.engine.cancel(other)
        assert yard.wait(other).state == "cancelled"
        only = client.run("squeue", "--noheader", "--format=%i").split()

        fill(disk / "filler")
        errors = cli("queue", "rebalance", status=1).stderr
        assert f"{handle} keeps its 4 GPUs" in " ".join(errors.split())
        assert "No space left" in errors
        assert client.run("squeue", "--noheader", "--format=%i").split() == only, "no companion"
        (disk / "filler").unlink()

        assert rebalance(cli) == {str(handle): (4, 8)}
        (directory,) = {path.parent for path in disk.rglob(RESIZE_FILE)}
        until(lambda: [*directory.glob("companion-*.json")], lambda: "the companion has its nodes")
        fill(disk / "filler")  # while the job writes a checkpoint and exits
        until(
            lambda: not [p for p in psutil.process_iter() if _is_rank(p, yard)], lambda: "it stops"
        )
        time.sleep(3)
        (disk / "filler").unlink()
        until(lambda: yard.output(handle).count("nodes 2") == 2, lambda: yard.output(handle))
        status = yard.status(handle)
        assert (status.state, status.gpus, status.restarts) == ("running", 8, 1)
        yard.engine.cancel(handle)
        assert yard.wait(handle).state == "cancelled"
        assert not [*directory.glob(".*")], "a partial file remains"


def _is_rank(process: psutil.Process, yard: Yard) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.cmdline()[1:] == [str(yard.directory / "torchrun"), "rank"]
    return False


def submit_with_companion(yard: Yard, companion: Handle) -> tuple[Handle, Path]:
    """Submit a job on one node with a request that names this job as its companion; return the request's file."""
    handle = elastic_job(yard)
    until(lambda: "nodes 1" in yard.output(handle), lambda: yard.output(handle))
    record = records.find(handle)[0]
    number = records.find(companion)[0].submissions[-1].number
    request = {"number": record.submissions[-1].number, "nodes": 2, "companion": str(number)}
    (record.directory / RESIZE_FILE).write_text(json.dumps(request) + "\n")
    return handle, record.directory / RESIZE_FILE


def test_a_reused_job_number_is_no_companion(rebalancing: Rebalancing, cli: Cli) -> None:
    """Slurm lost the companion with its controller and gave its number to another job."""
    with rebalancing(2, FAST) as yard:
        other = yard.submit("sleep", "6000", gpus=4)
        yard.until(other, "running")
        handle, request = submit_with_companion(yard, other)
        yard.engine.cancel(handle)
        assert yard.wait(handle).state == "cancelled"
        until(
            lambda: not request.exists() or not client.run("squeue", "-h"),
            lambda: "the script has exited",
        )
        assert yard.status(other).state == "running"
        handle, request = submit_with_companion(yard, other)
        assert rebalance(cli) == {}
        assert not request.exists(), "it waits for nodes that never come"
        yard.engine.cancel(handle)
