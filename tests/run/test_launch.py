"""The processes for the ranks of a run as values, and ranks that are killed on this machine."""

import pytest

from gpuyard.choices import Launcher
from gpuyard.errors import GpuyardError
from gpuyard.run.launch import RankLaunch, plan_launches
from gpuyard.run.places import Hosts, LocalMachine
from tests.conftest import needs_two_cores
from tests.run.sum_ranks import SumJob, sum_ranks


def jobs(count: int) -> list[SumJob]:
    return [
        SumJob(rank=rank, processes=count, directory="/run/it", cores=(rank,))
        for rank in range(count)
    ]


def create_hosts(*slots: int) -> Hosts:
    return Hosts(("10.0.0.1", "10.0.0.2"), slots=slots, port=29500)


def remote_words(launch: RankLaunch) -> set[str]:
    return set(launch.command.argv[-1].split())


def test_each_host_has_one_agent_that_starts_its_ranks() -> None:
    rank_jobs = jobs(5)
    first, second = plan_launches(create_hosts(3, 3), rank_jobs, "a.worker", "torchrun")
    assert (first.jobs, second.jobs) == (tuple(rank_jobs[:3]), tuple(rank_jobs[3:]))
    assert (first.command.node, second.command.node) == ("10.0.0.1", "10.0.0.2")
    words = remote_words(second)
    assert {"--nnodes=2", "--nproc-per-node=2", "--rdzv-conf=rank=1", "--max-restarts=0"} < words
    assert {"--rdzv-backend=gpuyard", "--rdzv-endpoint=10.0.0.1:29500"} < words
    assert "--nproc-per-node=3" in remote_words(first)
    assert second.command.argv[-1].endswith(" -P -m a.worker")


def test_on_this_machine_one_agent_has_all_ranks_and_no_port() -> None:
    (launch,) = plan_launches(LocalMachine(), jobs(2), "a.worker", "torchrun")
    assert [job.rank for job in launch.jobs] == [0, 1]
    argv = launch.command.argv
    assert {"--nnodes=1", "--nproc-per-node=2", "--rdzv-endpoint=127.0.0.1:0"} < set(argv)
    assert not any("port" in argument for argument in argv)


def test_direct_ranks_start_without_an_agent_and_know_their_position() -> None:
    remote = plan_launches(create_hosts(2, 1), jobs(3), "a.worker")
    assert [launch.command.node for launch in remote] == ["10.0.0.1", "10.0.0.1", "10.0.0.2"]
    assert {"RANK=1", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "GROUP_RANK=0"} < remote_words(
        remote[1]
    )
    assert {"RANK=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "GROUP_RANK=1"} < remote_words(
        remote[2]
    )
    local = plan_launches(
        LocalMachine(), jobs(2), "a.worker", environment=lambda rank: {"MINE": str(rank)}
    )
    assert [launch.command.argv[1:] for launch in local] == [("-P", "-m", "a.worker")] * 2
    assert [launch.command.environment["LOCAL_RANK"] for launch in local] == ["0", "1"]
    assert [launch.command.environment["MINE"] for launch in local] == ["0", "1"]


@needs_two_cores
@pytest.mark.parametrize("launcher", [pytest.param("torchrun", marks=pytest.mark.soak), "direct"])
def test_a_killed_rank_is_reported(launcher: Launcher) -> None:
    with pytest.raises(GpuyardError, match=r"rank 1 of 2 .*SIGKILL"):
        sum_ranks(LocalMachine(), 2, launcher, killed=1)


@needs_two_cores
@pytest.mark.parametrize(
    ("fault", "message"),
    [("lost", r"rank 1 of 2 lost .*rank"), ("terminated", r"rank 1 of 2 .*SIGTERM")],
)
def test_a_rank_that_torchrun_stops_because_of_another_is_not_reported(
    fault: str, message: str
) -> None:
    with pytest.raises(GpuyardError, match=message):
        sum_ranks(LocalMachine(), 2, "torchrun", **{fault: 1})
