"""The number of GPUs that a job with a range requests."""

import time
from pathlib import Path
from typing import Any

import pytest

from gpuyard.jobs.engines.slurm.request import SlurmRequest, create_request
from gpuyard.jobs.job import Job
from gpuyard.policies import get_policy
from gpuyard.slurm.client import UNKNOWN_CONFIG, SlurmConfig
from gpuyard.slurm.nodes import PartitionNodes
from gpuyard.specs.job import JobSpec

CONFIG = SlurmConfig("here", 17, 300.0, supports_gpus_per_node=True, has_topology=True)
IDLE = PartitionNodes((4, 4, 4, 4), (0, 0, 0, 0), frozenset({"t4"}))
SLOW = "4x4xt4@1G"  # More nodes make the job slower on this network.
TORCHRUN = ["torchrun", "train.py"]


def request(policy: str = "fifo", nodes: PartitionNodes = IDLE, **keys: Any) -> SlurmRequest:
    spec = {"command": TORCHRUN, "workload": "resnet50", "gpus": "2..16", **keys}
    job = Job.create(JobSpec.model_validate(spec), now=time.time())
    return create_request(job, CONFIG, nodes, Path("/x"), (), policy=get_policy(policy))


def shape(planned: SlurmRequest) -> tuple[int, int, int]:
    return planned.min_nodes, planned.max_nodes, planned.gpus_per_node


def test_a_job_does_not_span_nodes_with_a_slow_network() -> None:
    planned = request(slurm={"cluster": SLOW})
    assert shape(planned) == (1, 1, 4)
    assert dict(planned.options)["nodes"] == "1"
    head = " ".join(planned.text().split("JOB = ")[0].replace("\n#", "").split())
    for detail in ("4 GPUs of 2..16", "fifo", "predicted", "with 16"):
        assert detail in head
    fast = request(slurm={"cluster": "4x4xt4@100G"})
    assert shape(fast) == (4, 4, 4)


def test_without_a_workload_or_a_curve_it_requests_the_most_that_fit() -> None:
    assert shape(request(workload=None)) == (1, 4, 4)
    unknown = PartitionNodes((4, 4, 4, 4), (0, 0, 0, 0), frozenset({"our-gpus"}))
    assert shape(request(nodes=unknown)) == (1, 4, 4)
    assert request(nodes=unknown).speed is None


def test_an_unknown_network_limits_a_job_to_one_node() -> None:
    planned = request()
    assert shape(planned) == (1, 1, 4)
    assert planned.speed is not None
    assert "no curve is known" in planned.speed.rationale


def test_a_dry_run_without_slurm_uses_the_nodes_that_the_job_describes() -> None:
    job = Job.create(
        JobSpec.model_validate(
            {
                "command": TORCHRUN,
                "workload": "resnet50",
                "gpus": "2..16",
                "slurm": {"cluster": SLOW},
            }
        ),
        now=time.time(),
    )
    planned = create_request(job, UNKNOWN_CONFIG, PartitionNodes(), Path("/x"), ())
    assert shape(planned) == (1, 1, 4)
    assert "# Slurm was not asked; its nodes are assumed to match slurm.cluster" in planned.text()


def test_nodes_with_more_gpus_than_described_are_used_as_described() -> None:
    larger = PartitionNodes((8, 8), (0, 0), frozenset({"t4"}))
    planned = request(nodes=larger, gpus="2..8", slurm={"cluster": SLOW})
    assert shape(planned) == (1, 1, 4)


def test_gpus_in_use_are_not_counted() -> None:
    busy = PartitionNodes((4, 4), (4, 2), frozenset({"t4"}))
    assert shape(request("min-time", busy, gpus="1..4")) == (1, 1, 2), "the free GPUs"
    full = PartitionNodes((4, 4), (4, 4), frozenset({"t4"}))
    assert shape(request("min-time", full, gpus="1..4")) == (1, 1, 4), "all GPUs, if none is free"


def test_a_job_on_several_racks_requests_a_switch_for_each(tmp_path: Path) -> None:
    cluster = tmp_path / "my.cluster.yaml"
    cluster.write_text(
        "name: racks\nnodes: 4\nnodes_per_rack: 2\nmachine: {gpu: t4, gpus: 4}\nnetwork: {rate: 100 Gbit/s}\n"
    )
    own = {"cluster": str(cluster)}
    assert dict(request(gpus=16, slurm=own).options)["switches"] == "2@0-00:05:00"
    assert dict(request(gpus=8, slurm=own).options)["switches"] == "1@0-00:05:00"
    assert dict(request(gpus=16).options)["switches"] == "1@0-00:05:00"


def test_the_probability_of_finishing_in_time() -> None:
    speed = request(slurm={"cluster": SLOW}, samples=1_000_000).speed
    assert speed is not None
    expected_seconds = speed.seconds()
    assert expected_seconds is not None
    assert speed.finish_probability(expected_seconds) == pytest.approx(0.5)
    assert speed.finish_probability(-1.0) == 0
    sooner, later = (
        speed.finish_probability(expected_seconds * 0.9),
        speed.finish_probability(expected_seconds * 1.5),
    )
    assert sooner is not None
    assert later is not None
    assert 0 < sooner < 0.5 < later <= 1
