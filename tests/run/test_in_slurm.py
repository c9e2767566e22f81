"""Ranks in allocations of a real Slurm with two nodes of four GPUs, all on this machine."""

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
def sum_ranks(slurm: SlurmCluster) -> InAllocation:
    """Run `sum_ranks` in an allocation of two nodes, and return rank 0's result."""

    def run(*options: str, workers: int = 0, launcher: str = "torchrun", per_node: int = 0) -> Any:
        ranks = [sys.executable, "-m", "sum_ranks", "slurm", str(workers), launcher, str(per_node)]
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


def positions(result: dict[str, Any]) -> list[tuple[str, ...]]:
    names = ("SLURMD_NODENAME", "GROUP_RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE")
    return [tuple(rank[name] for name in names) for rank in result["ranks"]]


TWO_TIMES_TWO = [(f"node{n + 1}", str(n), str(i), "2", "4") for n in range(2) for i in range(2)]


def test_a_node_has_a_rank_for_each_gpu_of_the_job(sum_ranks: InAllocation) -> None:
    result = sum_ranks("--gpus-per-node=2")
    assert result["total"] == 2**4 - 1
    assert positions(result) == TWO_TIMES_TWO
    # Each rank sees all of the job's GPUs and uses the one with its local rank.
    assert {rank["CUDA_VISIBLE_DEVICES"] for rank in result["ranks"]} == {"0,1"}


@pytest.mark.soak
def test_ranks_per_node_sets_the_ranks_without_gpus(sum_ranks: InAllocation) -> None:
    result = sum_ranks(workers=4, launcher="direct", per_node=2)
    assert result["total"] == 2**4 - 1
    assert positions(result) == TWO_TIMES_TWO


@pytest.mark.parametrize(
    "options",
    [
        ("--gpus=3",),
        pytest.param(("--ntasks=3", "--gpus-per-task=1"), marks=pytest.mark.soak),
    ],
    ids=" ".join,
)
def test_each_gpu_has_a_rank_however_it_was_requested(
    sum_ranks: InAllocation, options: tuple[str, ...]
) -> None:
    result = sum_ranks(*options, launcher="direct")
    assert result["total"] == 2**3 - 1
    for rank in result["ranks"]:
        visible = rank["CUDA_VISIBLE_DEVICES"].split(",")
        assert len(visible) == int(rank["LOCAL_WORLD_SIZE"])


@pytest.mark.soak
def test_an_exclusive_job_has_all_gpus_of_its_nodes(sum_ranks: InAllocation) -> None:
    (rank,) = sum_ranks("--exclusive", workers=1)["ranks"]
    assert rank["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"
