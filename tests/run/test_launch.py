"""What is started for the ranks of a run, as a value; and ranks that are killed on this machine."""

import pytest

from gpuyard.errors import GpuyardError
from gpuyard.run.launch import Crew, Launcher, crews
from gpuyard.run.places import Here, Hosts
from tests.conftest import needs_two_cores
from tests.run.sum_ranks import SumJob, summed


def jobs(count: int) -> list[SumJob]:
    return [
        SumJob(rank=rank, processes=count, directory="/run/it", cores=(rank,))
        for rank in range(count)
    ]


def hosts(*room: int) -> Hosts:
    return Hosts(("10.0.0.1", "10.0.0.2"), room=room, port=29500)


def remote_words(crew: Crew) -> set[str]:
    return set(crew.command.argv[-1].split())


def test_each_host_has_one_agent_that_knows_the_first_and_starts_its_ranks() -> None:
    told = jobs(5)
    first, second = crews(hosts(3, 3), told, "a.worker", "torchrun")
    assert (first.jobs, second.jobs) == (tuple(told[:3]), tuple(told[3:]))
    assert (first.command.node, second.command.node) == ("10.0.0.1", "10.0.0.2")
    said = remote_words(second)
    assert {"--nnodes=2", "--nproc-per-node=2", "--rdzv-conf=rank=1", "--max-restarts=0"} < said
    assert {"--rdzv-backend=gpuyard", "--rdzv-endpoint=10.0.0.1:29500"} < said
    assert "--nproc-per-node=3" in remote_words(first)
    assert second.command.argv[-1].endswith(" -P -m a.worker")


def test_on_this_machine_one_agent_has_all_ranks_and_no_port() -> None:
    (crew,) = crews(Here(), jobs(2), "a.worker", "torchrun")
    assert [job.rank for job in crew.jobs] == [0, 1]
    argv = crew.command.argv
    assert {"--nnodes=1", "--nproc-per-node=2", "--rdzv-endpoint=127.0.0.1:0"} < set(argv)
    assert not any("port" in argument for argument in argv)


def test_direct_ranks_are_started_as_they_are_and_know_their_seat() -> None:
    started = crews(hosts(2, 1), jobs(3), "a.worker")
    assert [crew.command.node for crew in started] == ["10.0.0.1", "10.0.0.1", "10.0.0.2"]
    assert {"RANK=1", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "GROUP_RANK=0"} < remote_words(
        started[1]
    )
    assert {"RANK=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "GROUP_RANK=1"} < remote_words(
        started[2]
    )
    here = crews(Here(), jobs(2), "a.worker", environment=lambda rank: {"MINE": str(rank)})
    assert [crew.command.argv[1:] for crew in here] == [("-P", "-m", "a.worker")] * 2
    assert [crew.command.environment["LOCAL_RANK"] for crew in here] == ["0", "1"]
    assert [crew.command.environment["MINE"] for crew in here] == ["0", "1"]


@needs_two_cores
@pytest.mark.parametrize("launcher", [pytest.param("torchrun", marks=pytest.mark.soak), "direct"])
def test_a_rank_that_is_killed_is_told_as_that(launcher: Launcher) -> None:
    with pytest.raises(GpuyardError, match="rank 1 of 2 was killed by SIGKILL"):
        summed(Here(), 2, launcher, killed=1)


@needs_two_cores
@pytest.mark.parametrize(
    ("ended", "told"),
    [
        ("lost", "rank 1 of 2 has lost its connection to another rank"),
        ("terminated", "rank 1 of 2 was killed by SIGTERM"),
    ],
)
def test_a_rank_that_torchrun_ends_for_another_is_not_the_one_told_of(
    ended: str, told: str
) -> None:
    with pytest.raises(GpuyardError, match=told):
        summed(Here(), 2, "torchrun", **{ended: 1})
