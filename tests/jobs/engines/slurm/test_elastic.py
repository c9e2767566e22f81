"""A job on Slurm that can checkpoint gets more nodes while it runs, and gives some back, with the loss unbroken."""

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

from gpuyard.jobs.engines.slurm import commands, records
from gpuyard.jobs.engines.slurm.script.nodes import WANTED
from gpuyard.jobs.job import Handle
from tests.command_line import ROOT
from tests.conftest import Cli
from tests.deploy.small_disk import fill, small_disk
from tests.jobs.engines.slurm.conftest import SOON, Yard, a_yard, until
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
    """So many nodes of 4 GPUs under a Slurm with these settings, whose policy gives jobs more or fewer."""

    @contextmanager
    def start(nodes: int, settings: str) -> Iterator[Yard]:
        with slurm_cluster(nodes, settings) as slurm, a_yard(slurm, tmp_path, monkeypatch) as yard:
            assert cli("queue", "policy", "min-time").returncode == 0
            yield yard

    return start


@pytest.fixture
def elastic(monkeypatch: pytest.MonkeyPatch, rebalancing: Rebalancing) -> Iterator[Yard]:
    """Of 16 GPUs, `held` holds three nodes and `beside` all but one of the fourth."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with rebalancing(4, SOON) as yard:
        yield yard


def full(yard: Yard) -> tuple[Handle, Handle]:
    held = yard.submit("sleep", "6000", gpus=12, nodes=3)
    beside = yard.submit("sleep", "6000", gpus=3)
    yard.until(held, "running")
    yard.until(beside, "running")
    return held, beside


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
    """No step is left out or done twice."""
    found = _STEP.findall(yard.printed(handle))
    assert [int(step) for step, _, _ in found] == list(range(1, len(found) + 1))
    return {int(step): (float(loss), int(workers)) for step, loss, workers in found}


def until_steps(yard: Yard, handle: Handle, workers: int, after: int = 0) -> int:
    """Until so many workers have made some steps after this one; the last of them."""
    until(
        lambda: sum(w == workers for s, (_, w) in losses(yard, handle).items() if s > after) >= 5,
        lambda: f"steps of {workers} workers: {yard.printed(handle)[-2000:]}",
        seconds=0.5,
    )
    return len(losses(yard, handle))


def rebalanced(cli: Cli, *options: str) -> dict[str, tuple[int, int]]:
    said = cli("queue", "rebalance", "--json", *options)
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    return {one["job"]: (one["gpus"], one["new_gpus"]) for one in found["resizes"]}


def test_it_grows_when_another_job_ends_and_shrinks_when_one_is_submitted(
    elastic: Yard, cli: Cli, clips: Path
) -> None:
    held, beside = full(elastic)
    handle = train(elastic, clips)
    until_steps(elastic, handle, 1)
    assert rebalanced(cli) == {}, "nothing is free"
    elastic.engine.cancel(held)
    assert elastic.ended(held).state == "cancelled"

    assert rebalanced(cli, "--dry-run") == {str(handle): (1, 3)}
    assert not (records.find(handle)[0].directory / WANTED).exists()
    assert rebalanced(cli) == {str(handle): (1, 3)}
    last = until_steps(elastic, handle, 3)
    status = elastic.status(handle)
    assert (status.state, status.gpus, status.restarts) == ("running", 3, 1)
    assert len(set(status.nodes)) == 3

    short = elastic.submit(
        "sh", "-c", "true", gpus=12, nodes=3, workload="spoken-digits-linear", samples=12
    )
    until(lambda: rebalanced(cli) == {str(handle): (3, 1)}, lambda: "it makes room")
    assert elastic.ended(short).state == "succeeded"
    last = until_steps(elastic, handle, 1, after=last)
    status = elastic.status(handle)
    assert (status.gpus, status.restarts, len(status.logs)) == (1, 2, 3)

    for one in (handle, beside):
        elastic.engine.cancel(one)
        assert elastic.ended(one).state == "cancelled"
    seen = losses(elastic, handle)
    alone = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1"),
            *example(clips, len(seen)),
            *("--checkpoint", str(elastic.directory / "alone")),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    never_stopped = {int(step): float(loss) for step, loss, _ in _STEP.findall(alone.stdout)}
    assert {s: loss for s, (loss, _) in seen.items()} == pytest.approx(never_stopped, rel=1e-3)
    until(lambda: commands.ask("squeue", "--noheader") == "", lambda: "no companion is left")


def test_nodes_that_it_loses_again_cost_a_restart_and_nothing_else(
    elastic: Yard, cli: Cli, clips: Path
) -> None:
    held, _ = full(elastic)
    handle = train(elastic, clips)
    until_steps(elastic, handle, 1)
    elastic.engine.cancel(held)
    assert elastic.ended(held).state == "cancelled"
    assert rebalanced(cli) == {str(handle): (1, 3)}
    until(lambda: elastic.status(handle).gpus == 3, lambda: str(elastic.status(handle)))
    (companion,) = records.find(handle)[0].directory.glob("more-*.json")
    until(
        lambda: "workers 3" in elastic.printed(handle), lambda: elastic.printed(handle), seconds=0.5
    )
    commands.scancel(companion.stem.removeprefix("more-"))
    until(lambda: elastic.status(handle).restarts == 2, lambda: str(elastic.status(handle)))
    status = elastic.status(handle)
    assert (status.state, status.gpus) == ("running", 1)
    elastic.engine.cancel(handle)
    assert elastic.ended(handle).state == "cancelled"


def test_one_that_ends_takes_the_nodes_with_it_that_it_still_waits_for(
    elastic: Yard, cli: Cli, clips: Path
) -> None:
    """As where somebody was faster: the companion waits, and the job goes on as it is."""
    full(elastic)
    handle = train(elastic, clips)
    until_steps(elastic, handle, 1)
    record = records.find(handle)[0]
    number = record.submissions[-1].number
    more = commands.sbatch(
        str(record.script),
        record.environment(),
        *("--nodes=2", f"--dependency=after:{number}", "--no-requeue", "--hold"),
        f"--comment=gpuyard-more:{record.job.uuid}",
        arguments=("more", str(number)),
    )
    (record.directory / WANTED).write_text(
        json.dumps({"number": number, "nodes": 3, "more": str(more)}) + "\n"
    )
    done = until_steps(elastic, handle, 1, after=len(losses(elastic, handle)))
    assert done > 0, "it goes on"
    assert elastic.status(handle).restarts == 0
    elastic.engine.cancel(handle)
    assert elastic.ended(handle).state == "cancelled"
    until(
        lambda: str(more) not in commands.ask("squeue", "--noheader", "--format=%i").split(),
        lambda: "the companion is gone",
    )


# as torchrun goes: what it starts is told to end at a checkpoint, and does
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
def test_slurm_shrinks_its_own_job_where_the_site_lets_it(
    rebalancing: Rebalancing, cli: Cli, allowed: bool
) -> None:
    with rebalancing(2, SOON if allowed else SOON.strip() + ",disable_job_shrink\n") as yard:
        handle = elastic_job(yard)
        until(lambda: yard.printed(handle).count("nodes 2") == 2, lambda: yard.printed(handle))
        short = yard.submit("true", gpus=4, samples=100, **PREDICTED)
        until(lambda: rebalanced(cli) == {str(handle): (8, 4)}, lambda: "it makes room")
        until(lambda: yard.status(handle).restarts == 1, lambda: str(yard.status(handle)))
        if allowed:
            assert yard.ended(short).state == "succeeded"
            until(lambda: rebalanced(cli) == {str(handle): (4, 8)}, lambda: "it grows again")
            until(lambda: yard.status(handle).restarts == 2, lambda: str(yard.status(handle)))
        else:
            said = json.loads(cli("queue", "rebalance", "--json").stdout)
            assert said["resizes"] == [], "it is asked again and again"
            assert "does not let it shrink" in said["kept"][0]["reason"]
        assert (yard.status(handle).state, yard.status(handle).gpus) == ("running", 8)
        yard.engine.cancel(handle)
        assert yard.ended(handle).state == "cancelled"
        assert not [*yard.directory.parent.rglob("*_resize.*")]


def test_a_disk_that_fills_meanwhile_costs_neither_the_job_nor_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    with (
        small_disk(tmp_path / "disk", megabytes=8) as disk,
        slurm_cluster(2, SOON) as slurm,
        a_yard(slurm, tmp_path, monkeypatch) as yard,
    ):
        monkeypatch.setenv("GPUYARD_HOME", str(disk))
        assert cli("queue", "policy", "min-time").returncode == 0
        other = yard.submit("sleep", "6000", gpus=4)
        yard.until(other, "running")
        handle = elastic_job(yard)
        until(lambda: "nodes 1" in yard.printed(handle), lambda: yard.printed(handle))
        yard.engine.cancel(other)
        assert yard.ended(other).state == "cancelled"
        only = commands.ask("squeue", "--noheader", "--format=%i").split()

        fill(disk / "filler")
        said = cli("queue", "rebalance", status=1).stderr
        assert f"{handle} keeps its 4 GPUs" in " ".join(said.split()) and "No space left" in said
        assert commands.ask("squeue", "--noheader", "--format=%i").split() == only, "no companion"
        (disk / "filler").unlink()

        assert rebalanced(cli) == {str(handle): (4, 8)}
        (directory,) = {path.parent for path in disk.rglob(WANTED)}
        until(lambda: [*directory.glob("more-*.json")], lambda: "the nodes are there")
        fill(disk / "filler")  # while it stops at a checkpoint
        until(
            lambda: not [p for p in psutil.process_iter() if _is_rank(p, yard)], lambda: "it stops"
        )
        time.sleep(3)
        (disk / "filler").unlink()
        until(lambda: yard.printed(handle).count("nodes 2") == 2, lambda: yard.printed(handle))
        status = yard.status(handle)
        assert (status.state, status.gpus, status.restarts) == ("running", 8, 1)
        yard.engine.cancel(handle)
        assert yard.ended(handle).state == "cancelled"
        assert not [*directory.glob(".*")], "no half of a file is left"


def _is_rank(process: psutil.Process, yard: Yard) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.cmdline()[1:] == [str(yard.directory / "torchrun"), "rank"]
    return False


def waits_for(yard: Yard, companion: Handle) -> tuple[Handle, Path]:
    """A job on one node that waits for nodes of a companion, under the number of this job; and where it says so."""
    handle = elastic_job(yard)
    until(lambda: "nodes 1" in yard.printed(handle), lambda: yard.printed(handle))
    record = records.find(handle)[0]
    more = records.find(companion)[0].submissions[-1].number
    wanted = {"number": record.submissions[-1].number, "nodes": 2, "more": str(more)}
    (record.directory / WANTED).write_text(json.dumps(wanted) + "\n")
    return handle, record.directory / WANTED


def test_a_number_that_slurm_gave_to_another_job_meanwhile_is_no_companion(
    rebalancing: Rebalancing, cli: Cli
) -> None:
    """As where Slurm has lost the companion with its controller."""
    with rebalancing(2, SOON) as yard:
        other = yard.submit("sleep", "6000", gpus=4)
        yard.until(other, "running")
        handle, wanted = waits_for(yard, other)
        yard.engine.cancel(handle)
        assert yard.ended(handle).state == "cancelled"
        until(
            lambda: not wanted.exists() or not commands.ask("squeue", "-h"),
            lambda: "the script has ended",
        )
        assert yard.status(other).state == "running"
        handle, wanted = waits_for(yard, other)
        assert rebalanced(cli) == {}
        assert not wanted.exists(), "it waits for nodes that never come"
        yard.engine.cancel(handle)
