"""Ranks through torchrun: what is started as a value, and real ranks on this machine."""

from collections.abc import Callable

import psutil
import pytest

from gpuyard.errors import GpuyardError, UnknownName, UserMistake
from gpuyard.measure import ResultsStore, plan_sweep, run_sweep
from gpuyard.measure.convergence.job import FitJob
from gpuyard.run.launch import Meeting, crews
from gpuyard.specs import Workload
from tests.conftest import needs_two_cores

Build = Callable[..., Workload]


@pytest.fixture
def jobs(tiny: Build) -> list[FitJob]:
    return [
        FitJob(
            workload=tiny(),
            device="cpu",
            rank=rank,
            processes=2,
            directory="/run/it",
            cores=(rank,),
            silence_seconds=1,
            seed=0,
            batch_per_worker=1,
            epochs=1,
            target_accuracy=1,
            checkpoint="c",
            identity="i",
        )
        for rank in range(2)
    ]


def test_over_hosts_each_has_an_agent_that_knows_the_first(jobs: list[FitJob]) -> None:
    first, second = crews(jobs, "a.worker", "torchrun", Meeting("10.0.0.1", 29500))
    assert (first.jobs, second.jobs) == ((jobs[0],), (jobs[1],))
    said = second.argv
    assert {"--nnodes=2", "--nproc-per-node=1", "--node-rank=1"} < set(said)
    assert {"--master-addr=10.0.0.1", "--master-port=29500", "--max-restarts=0"} < set(said)
    assert said[said.index("--no-python") + 2 :] == ("-P", "-m", "a.worker")
    assert second.name == "rank1"


def test_on_one_host_one_agent_has_all_ranks_and_no_port(jobs: list[FitJob]) -> None:
    (crew,) = crews(jobs, "a.worker", "torchrun")
    assert crew.jobs == tuple(jobs)
    assert {"--nnodes=1", "--nproc-per-node=2", "--rdzv-conf=store_type=file"} < set(crew.argv)
    assert not any("port" in argument for argument in crew.argv)


def test_direct_ranks_are_started_as_they_are(jobs: list[FitJob]) -> None:
    started = crews(jobs, "a.worker", "direct", Meeting("10.0.0.1", 29500))
    assert [crew.argv[1:] for crew in started] == [("-P", "-m", "a.worker")] * 2


@needs_two_cores
def test_torchrun_trains_here_and_nobody_can_connect(store: ResultsStore, tiny: Build) -> None:
    listening: set[str] = set()

    def look(_event: object) -> None:
        for child in psutil.Process().children(recursive=True):
            for connection in child.net_connections("inet"):
                if connection.status == psutil.CONN_LISTEN:
                    listening.add(connection.laddr.ip)

    sweep = plan_sweep(tiny(), [2], [8], seconds_per_point=0.3, launcher="torchrun")
    (m,) = run_sweep(sweep, store, on_event=look)
    assert m.provenance.launcher == "torchrun"
    assert m.provenance.backend == "gloo"
    assert len(set(m.parameter_checksums)) == 1
    assert listening <= {"127.0.0.1", "::1"}
    assert plan_sweep(tiny(), [2], [8], seconds_per_point=0.3).points == sweep.points


@needs_two_cores
def test_a_rank_that_dies_under_torchrun_is_told_as_any_other(
    store: ResultsStore, tiny: Build
) -> None:
    sweep = plan_sweep(tiny("CrashInRankOne"), [2], [4], launcher="torchrun")
    with pytest.raises(GpuyardError, match="rank 1 of 2 ended with status 1") as caught:
        run_sweep(sweep, store)
    assert "ValueError: the second rank has had enough" in str(caught.value)


def test_only_ddp_is_started_by_torchrun(tiny: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpuyard.measure.training import sweep

    with pytest.raises(UnknownName, match="did you mean 'torchrun'"):
        plan_sweep(tiny(), [1], [4], launcher="torchrn")
    monkeypatch.setattr(sweep, "check_strategy", lambda *_a, **_k: None)
    with pytest.raises(UserMistake, match="horovod is started directly"):
        plan_sweep(tiny(), [1], [4], strategy="horovod", launcher="torchrun")
