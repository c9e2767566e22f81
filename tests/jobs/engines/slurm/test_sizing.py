"""How many GPUs of a range a job asks Slurm for."""

import time
from pathlib import Path
from typing import Any

import pytest

from gpuyard.jobs.engines.slurm.commands import NOT_ASKED, PartitionNodes, SlurmConfig
from gpuyard.jobs.engines.slurm.request import SlurmRequest, make_request
from gpuyard.jobs.job import Job
from gpuyard.jobs.policies import policy_of
from gpuyard.specs.job import JobSpec

CONFIG = SlurmConfig("here", 17, 300.0, gpus_per_node=True, switches=True)
IDLE = PartitionNodes((4, 4, 4, 4), (0, 0, 0, 0), frozenset({"t4"}))
SLOW = "4x4xt4@1G"  # over which more nodes only slow it
TORCHRUN = ["torchrun", "train.py"]


def request(policy: str = "fifo", nodes: PartitionNodes = IDLE, **keys: Any) -> SlurmRequest:
    said = {"command": TORCHRUN, "workload": "resnet50", "gpus": "2..16", **keys}
    job = Job.of(JobSpec.model_validate(said), now=time.time())
    return make_request(job, CONFIG, nodes, Path("/x"), (), policy=policy_of(policy))


def shape(made: SlurmRequest) -> tuple[int, int, int]:
    return made.fewest_nodes, made.most_nodes, made.gpus_per_node


def test_a_network_that_only_slows_it_is_not_crossed() -> None:
    made = request(slurm={"cluster": SLOW})
    assert shape(made) == (1, 1, 4)
    assert dict(made.options)["nodes"] == "1"
    head = " ".join(made.text().split("JOB = ")[0].replace("\n#", "").split())
    assert "4 GPUs of 2..16, chosen by fifo from the job's curve (predicted): " in head
    assert "with 16 it would be" in head
    fast = request(slurm={"cluster": "4x4xt4@100G"})
    assert shape(fast) == (4, 4, 4)


def test_without_a_workload_or_a_curve_it_asks_for_the_most_that_fit() -> None:
    assert shape(request(workload=None)) == (1, 4, 4)
    unknown = PartitionNodes((4, 4, 4, 4), (0, 0, 0, 0), frozenset({"our-gpus"}))
    assert shape(request(nodes=unknown)) == (1, 4, 4)
    assert request(nodes=unknown).speed is None


def test_of_several_nodes_whose_network_nobody_names_one_is_taken() -> None:
    made = request()
    assert shape(made) == (1, 1, 4)
    assert made.speed is not None
    assert "no curve is known" in made.speed.words


def test_a_dry_run_without_slurm_takes_the_nodes_that_the_job_describes() -> None:
    job = Job.of(
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
    made = make_request(job, NOT_ASKED, PartitionNodes(), Path("/x"), ())
    assert shape(made) == (1, 1, 4)
    assert "a node is taken as slurm.cluster describes it" in made.text()


def test_nodes_with_more_gpus_than_are_described_are_used_as_described() -> None:
    larger = PartitionNodes((8, 8), (0, 0), frozenset({"t4"}))
    made = request(nodes=larger, gpus="2..8", slurm={"cluster": SLOW})
    assert shape(made) == (1, 1, 4)


def test_what_others_have_is_left_to_them() -> None:
    busy = PartitionNodes((4, 4), (4, 2), frozenset({"t4"}))
    assert shape(request("min-time", busy, gpus="1..4")) == (1, 1, 2), "what is free now"
    full = PartitionNodes((4, 4), (4, 4), frozenset({"t4"}))
    assert shape(request("min-time", full, gpus="1..4")) == (1, 1, 4), "else it waits for all"


def test_a_job_of_more_nodes_than_a_rack_asks_for_as_many_switches(tmp_path: Path) -> None:
    cluster = tmp_path / "my.cluster.yaml"
    cluster.write_text(
        "name: racks\nnodes: 4\nnodes_per_rack: 2\nmachine: {gpu: t4, gpus: 4}\nnetwork: {rate: 100 Gbit/s}\n"
    )
    said = {"cluster": str(cluster)}
    assert dict(request(gpus=16, slurm=said).options)["switches"] == "2@0-00:05:00"
    assert dict(request(gpus=8, slurm=said).options)["switches"] == "1@0-00:05:00"
    assert dict(request(gpus=16).options)["switches"] == "1@0-00:05:00"


def test_how_likely_it_is_in_time() -> None:
    speed = request(slurm={"cluster": SLOW}, samples=1_000_000).speed
    assert speed is not None
    whole_s = speed.seconds()
    assert whole_s is not None
    assert speed.chance_within(whole_s) == pytest.approx(0.5)
    assert speed.chance_within(-1.0) == 0
    sooner, later = speed.chance_within(whole_s * 0.9), speed.chance_within(whole_s * 1.5)
    assert sooner is not None
    assert later is not None
    assert 0 < sooner < 0.5 < later <= 1
