"""A real Slurm grants fewer GPUs on one node than the spec has."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm_cluster import GPUS, SlurmCluster, slurm_cluster

NODES = 3


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    with slurm_cluster(NODES) as cluster:
        yield cluster


def accept(
    slurm: SlurmCluster, home: Path, gpus: int, phases: str
) -> tuple[int, dict[str, object]]:
    home.mkdir(exist_ok=True)
    done = slurm.run(
        *("salloc", "--quiet", f"--nodes={NODES}", f"--gpus={gpus}"),
        *(sys.executable, "-m", "gpuyard", "accept", f"{NODES}x{GPUS}xt4@1G", "--slurm"),
        *("--checks", phases, "--json"),
        environment={"GPUYARD_HOME": str(home), "PYTHONPATH": ":".join(filter(None, sys.path))},
    )
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)


def test_the_node_with_fewer_gpus_is_named(slurm: SlurmCluster, home: Path) -> None:
    status, record = accept(slurm, home, NODES * GPUS - 1, "inventory")
    assert status == 1
    (failed,) = (node for node in record["nodes"] if node["grade"] == "fail")  # type: ignore[attr-defined]
    assert [(f["subject"], f["ratio"]) for f in failed["findings"]] == [("GPUs", (GPUS - 1) / GPUS)]
    assert failed["inventory"]["gpu_source"] == "slurm"


@pytest.mark.soak
def test_all_phases_run_and_nobody_is_accused(slurm: SlurmCluster, home: Path) -> None:
    # the nodes are processes on one machine: its loopback is faster than 1 Gbit/s
    status, record = accept(slurm, home, NODES * GPUS, "inventory,alone,pairs,all,training")
    assert [node["grade"] for node in record["nodes"]] == ["pass"] * NODES  # type: ignore[attr-defined]
    assert (status, record["accepted"], record["left_out"]) == (0, True, [])
    assert record["whole"]
    assert record["training"]
