"""A real Slurm grants fewer GPUs on one node than the spec has."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.measure.acceptance.faults import cpu_quota
from tests.slurm_cluster import GPUS, SlurmCluster, linked_slurm_cluster, slurm_cluster

NODES = 3


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    with slurm_cluster(NODES) as cluster:
        yield cluster


def accept(
    slurm: SlurmCluster,
    home: Path,
    gpus: int,
    phases: str,
    *,
    nodes: int = NODES,
    network: str = "1G",
    **environment: str,
) -> tuple[int, dict[str, object]]:
    home.mkdir(exist_ok=True)
    done = slurm.run(
        *("salloc", "--quiet", f"--nodes={nodes}", f"--gpus={gpus}"),
        *(sys.executable, "-m", "gpuyard", "accept", f"{nodes}x{GPUS}xt4@{network}", "--slurm"),
        *("--checks", phases, "--json"),
        environment={
            "GPUYARD_HOME": str(home),
            "PYTHONPATH": ":".join(filter(None, sys.path)),
            **environment,
        },
        seconds=1800.0,
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


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_half_a_link_a_slow_cpu_and_a_missing_gpu_of_eight_nodes_are_found(home: Path) -> None:
    links, gpus = ["100mbit"] * 8, [GPUS] * 8
    links[1], gpus[3] = "50mbit", GPUS - 1
    with cpu_quota(0.3) as group, linked_slurm_cluster(links, gpus, {3: group}) as slurm:
        status, record = accept(
            slurm, home, sum(gpus), "inventory,alone,pairs",
            nodes=8, network="100M", GLOO_SOCKET_IFNAME="eth0",
        )  # fmt: skip
    found = [
        (node["name"], finding["phase"], finding["grade"], finding["text"])
        for node in record["nodes"]  # type: ignore[attr-defined]
        for finding in node["findings"]
    ]
    failed = {(name, phase) for name, phase, grade, _ in found if grade == "fail"}
    expected = {("node2", "pairs"), ("node3", "alone"), ("node4", "inventory")}
    assert failed == expected, (found, record["left_out"])
    assert status == 1
