"""Ranks in allocations of a real Slurm of two nodes with four GPUs each, all of them on this machine."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.slurm_cluster import SlurmCluster, slurm_cluster

InAllocation = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    with slurm_cluster(2) as cluster:
        yield cluster


@pytest.fixture
def summed(slurm: SlurmCluster) -> InAllocation:
    """What rank 0 of `sum_ranks` says in an allocation of two nodes."""

    def run(*options: str, workers: int = 0, launcher: str = "torchrun", a_node: int = 0) -> Any:
        ranks = [sys.executable, "-m", "sum_ranks", "slurm", str(workers), launcher, str(a_node)]
        done = slurm.run(
            *("salloc", "--quiet", "--nodes=2", *options),
            *ranks,
            environment={
                "PYTHONPATH": ":".join([str(Path(__file__).parent), *filter(None, sys.path)])
            },
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def seats(said: dict[str, Any]) -> list[tuple[str, ...]]:
    names = ("SLURMD_NODENAME", "GROUP_RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE")
    return [tuple(seat[name] for name in names) for seat in said["seats"]]


TWO_TIMES_TWO = [(f"node{n + 1}", str(n), str(i), "2", "4") for n in range(2) for i in range(2)]


def test_a_node_has_a_rank_for_each_gpu_of_the_job_and_all_exchange(summed: InAllocation) -> None:
    said = summed("--gpus-per-node=2")
    assert said["total"] == 2**4 - 1
    assert seats(said) == TWO_TIMES_TWO
    # each rank sees all of the job, and takes the one with its local rank
    assert {seat["CUDA_VISIBLE_DEVICES"] for seat in said["seats"]} == {"0,1"}


@pytest.mark.soak
def test_without_gpus_ranks_per_node_says_how_many(summed: InAllocation) -> None:
    said = summed(workers=4, launcher="direct", a_node=2)
    assert said["total"] == 2**4 - 1
    assert seats(said) == TWO_TIMES_TWO


@pytest.mark.parametrize(
    "options",
    [
        ("--gpus=3",),
        pytest.param(("--ntasks=3", "--gpus-per-task=1"), marks=pytest.mark.soak),
    ],
    ids=" ".join,
)
def test_however_the_gpus_were_asked_for_each_has_its_rank(
    summed: InAllocation, options: tuple[str, ...]
) -> None:
    said = summed(*options, launcher="direct")
    assert said["total"] == 2**3 - 1
    for seat in said["seats"]:
        visible = seat["CUDA_VISIBLE_DEVICES"].split(",")
        assert len(visible) == int(seat["LOCAL_WORLD_SIZE"])


@pytest.mark.soak
def test_a_job_that_has_its_nodes_alone_has_their_gpus(summed: InAllocation) -> None:
    (seat,) = summed("--exclusive", workers=1)["seats"]
    assert seat["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"
