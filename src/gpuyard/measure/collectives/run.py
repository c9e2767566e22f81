"""Runs a plan: the ranks together, what they time beside the model, and a verdict."""

import contextlib
import uuid
from collections.abc import Callable, Generator
from datetime import UTC, datetime

import psutil

from gpuyard.measure.bench_host import bench_host
from gpuyard.measure.collectives.expected import LAB_PAYLOAD, Links
from gpuyard.measure.collectives.plan import CollectivesPlan
from gpuyard.measure.collectives.records import (
    CollectivesBench,
    CollectivesJob,
    Load,
    Pair,
    Probe,
    Started,
    Timed,
    read_event,
)
from gpuyard.measure.collectives.verdict import find_slow, judge
from gpuyard.measure.lock import only_one_measures
from gpuyard.predict.platform.transport import TCP_PAYLOAD
from gpuyard.run.launch import Crew, worker_argv
from gpuyard.run.places import Here
from gpuyard.run.process import python_path
from gpuyard.run.ranks import private_directory, run_crews, run_ranks

WORKER = "gpuyard.measure.collectives.worker"
_LOOK_SECONDS = 0.2
_SILENCE_SECONDS = 600.0
_Event = Probe | Timed | Started
OnEvent = Callable[[Started, int], None]
"""What is timed now, and how many are done."""


def run_collectives(
    plan: CollectivesPlan,
    *,
    on_event: OnEvent | None = None,
    silence_seconds: float = _SILENCE_SECONDS,
) -> CollectivesBench:
    """Time every operation at every size; nothing outlives this, however it ends."""
    tell = on_event or (lambda _started, _done: None)
    before = psutil.cpu_percent(interval=_LOOK_SECONDS) / 100
    probe: Probe | None = None
    timed: list[Timed] = []
    during = before
    with only_one_measures(), contextlib.closing(_events(plan, silence_seconds)) as events:
        for event in events:
            match event:
                case Started():
                    tell(event, len(timed))
                case Probe():
                    probe = _undilated_probe(event, plan.place.dilation)
                    psutil.cpu_percent()  # counts from here: starting Python is not exchanging
                case Timed():
                    timed.append(_undilated(event, plan.place.dilation))
                    during = (
                        psutil.cpu_percent() / 100 if len(timed) == plan_length(plan) else during
                    )
    if probe is None:
        raise RuntimeError("the ranks ended without a word")
    cores = {core for cores in plan.cores_by_worker for core in cores}
    load = Load(
        before=before,
        during=during,
        ranks_per_core=plan.workers / len(cores) if cores else 0.0,
    )
    return _bench(plan, probe, timed, load)


def plan_length(plan: CollectivesPlan) -> int:
    """How many times something is timed."""
    return len(plan.operations) * len(plan.sizes)


def _events(plan: CollectivesPlan, silence_seconds: float) -> Generator[_Event, None, None]:
    with private_directory() as directory:
        jobs = [
            CollectivesJob(
                rank=rank,
                processes=plan.workers,
                directory=str(directory),
                cores=plan.cores_by_worker[rank],
                silence_seconds=silence_seconds,
                device=plan.device,
                backend=plan.backend,
                operations=plan.operations,
                sizes=plan.sizes,
                repeats=plan.repeats,
                seconds_per_size=plan.seconds_per_size * plan.place.dilation,
            )
            for rank in range(plan.workers)
        ]
        if plan.backend == "mpi":
            yield from _under_mpi(jobs[0], plan.workers)
            return
        ranks: Generator[_Event, None, None] = run_ranks(
            plan.place, jobs, parse=read_event, worker=WORKER
        )
        with contextlib.closing(ranks) as events:
            yield from events


def _under_mpi(first: CollectivesJob, ranks: int) -> Generator[_Event, None, None]:
    from gpuyard.measure.collectives.mpi import MPI_WORKER, under_mpiexec

    variables = {**python_path(), "OMP_NUM_THREADS": str(len(first.cores))}
    command = Here().command(0, under_mpiexec(ranks, worker_argv(MPI_WORKER)), variables)
    leader = first.model_copy(update={"cores": ()})  # mpiexec decides where its ranks are
    events: Generator[_Event, None, None] = run_crews([Crew((leader,), command)], read_event)
    with contextlib.closing(events):
        yield from events


def _undilated(timed: Timed, dilation: float) -> Timed:
    return timed.model_copy(update={"seconds": tuple(s / dilation for s in timed.seconds)})


def _undilated_probe(probe: Probe, dilation: float) -> Probe:
    return Probe(
        latency_seconds=probe.latency_seconds / dilation,
        ring_bytes_per_second=probe.ring_bytes_per_second * dilation,
        pairs=tuple(
            Pair(
                source=pair.source,
                target=pair.target,
                bytes_per_second=pair.bytes_per_second * dilation,
            )
            for pair in probe.pairs
        ),
    )


def _bench(plan: CollectivesPlan, probe: Probe, timed: list[Timed], load: Load) -> CollectivesBench:
    payload = LAB_PAYLOAD if plan.place.emulated else TCP_PAYLOAD
    sold = plan.link_bytes_per_second
    rate = sold * payload if sold is not None else probe.ring_bytes_per_second
    links = Links(bytes_per_second=rate, latency_seconds=probe.latency_seconds)
    results = tuple(judge(one, plan.backend, plan.workers, links) for one in timed)
    notes = (
        ()
        if sold is not None
        else (
            "Nobody said how fast the links are, so the model takes the rate that bare sends around the "
            "ring reached; with --link it would judge the links too.",
        )
    )
    return CollectivesBench(
        id=uuid.uuid4().hex[:12],
        key=plan.key,
        created_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        backend=plan.backend,
        device=plan.device,
        ranks=plan.workers,
        place=plan.place.record(plan.workers),
        link_bytes_per_second=sold,
        reckoned_bytes_per_second=rate,
        probe=probe,
        load=load,
        host=bench_host(plan.host),
        results=results,
        findings=find_slow(
            results,
            links=links,
            probe=probe,
            load=load,
            link_bytes_per_second=sold,
            emulated=plan.place.emulated,
        ),
        notes=notes,
    )
