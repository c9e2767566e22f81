"""Runs a collectives bench: starts the ranks, collects their times, and compares them with the model."""

import contextlib
from collections.abc import Callable, Generator, Iterator
from functools import partial

import psutil

from gpuyard.interpreter import import_path, module_argv
from gpuyard.measure.collectives.expected import LAB_PAYLOAD, RingLinks
from gpuyard.measure.collectives.plan import CollectivesPlan, find_mpiexec
from gpuyard.measure.collectives.records import (
    CollectivesBench,
    CollectivesJob,
    CoreLoad,
    Probe,
    RankEvent,
    RingPair,
    Started,
    TimedCollective,
    read_event,
)
from gpuyard.measure.collectives.verdict import find_slow_collectives, judge
from gpuyard.measure.progress import ProgressCallback, ProgressMeter, ProgressUpdate
from gpuyard.measure.ranks import launch_ranks
from gpuyard.measure.record import create_identity
from gpuyard.predictor.constants import TCP_PAYLOAD
from gpuyard.run.launch import RankLaunch
from gpuyard.run.places import LocalMachine
from gpuyard.run.protocol import SILENCE_SECONDS
from gpuyard.run.ranks import private_directory, run_launches
from gpuyard.units import format_bytes

_WORKER = "gpuyard.measure.collectives.worker"
_MPI_WORKER = "gpuyard.measure.collectives.mpi_worker"
_LOAD_SECONDS = 0.2


def run_collectives(
    plan: CollectivesPlan,
    on_progress: ProgressCallback = lambda _progress: None,
    *,
    silence_seconds: float = SILENCE_SECONDS,
) -> CollectivesBench:
    """Time every operation at every size; all processes are stopped at the end, also after an error."""
    before = psutil.cpu_percent(interval=_LOAD_SECONDS) / 100
    probe: Probe | None = None
    timed: list[TimedCollective] = []
    during = before
    meter = ProgressMeter(plan.exchanges)
    with _launch(plan, silence_seconds) as events:
        for event in events:
            match event:
                case Started(operation=None):
                    on_progress(ProgressUpdate("the links alone", 0.0, len(plan.exchanges)))
                case Started():
                    description = f"{event.operation} of {format_bytes(event.bytes)}"
                    on_progress(meter.advance((event.operation, event.bytes), 0.0, description))
                case Probe():
                    probe = _undilate_probe(event, plan.place.dilation)
                    psutil.cpu_percent()  # start counting here, to leave out Python's startup
                case TimedCollective():
                    timed.append(_undilate(event, plan.place.dilation))
                    on_progress(meter.advance((event.operation, event.bytes), 1.0, event.operation))
                    if len(timed) == len(plan.exchanges):
                        during = psutil.cpu_percent() / 100
    if probe is None:
        raise RuntimeError("the ranks ended without reporting a probe")
    cores = {core for cores in plan.cores_by_worker for core in cores}
    load = CoreLoad(
        before=before,
        during=during,
        ranks_per_core=plan.workers / len(cores) if cores else 0.0,
    )
    return _build_record(plan, probe, timed, load)


def _launch(
    plan: CollectivesPlan, silence_seconds: float
) -> contextlib.AbstractContextManager[Iterator[RankEvent]]:
    job = partial(
        CollectivesJob,
        silence_seconds=silence_seconds,
        device=plan.device,
        backend=plan.backend,
        operations=plan.operations,
        sizes=plan.sizes,
        repeats=plan.repeats,
        seconds_per_size=plan.seconds_per_size * plan.place.dilation,
    )
    if plan.backend == "mpi":
        return _launch_mpi(plan, job)
    return launch_ranks(plan.place, plan.cores_by_worker, job, worker=_WORKER, read=read_event)


@contextlib.contextmanager
def _launch_mpi(
    plan: CollectivesPlan, job: Callable[..., CollectivesJob]
) -> Iterator[Iterator[RankEvent]]:
    # one command for all ranks: mpiexec starts them, and passes its stdin to the first
    variables = {**import_path(), "OMP_NUM_THREADS": str(len(plan.cores_by_worker[0]))}
    argv = [find_mpiexec() or "mpiexec", "-n", str(plan.workers), *module_argv(_MPI_WORKER)]
    with private_directory() as directory:
        # mpiexec places the ranks on cores
        leader = job(rank=0, processes=plan.workers, directory=str(directory), cores=())
        launch = RankLaunch((leader,), LocalMachine().command(0, argv, variables))
        ranks: Generator[RankEvent, None, None] = run_launches([launch], read_event)
        with contextlib.closing(ranks) as events:
            yield events


def _undilate(timed: TimedCollective, dilation: float) -> TimedCollective:
    return timed.model_copy(update={"seconds": tuple(s / dilation for s in timed.seconds)})


def _undilate_probe(probe: Probe, dilation: float) -> Probe:
    return Probe(
        latency_seconds=probe.latency_seconds / dilation,
        ring_bytes_per_second=probe.ring_bytes_per_second * dilation,
        pairs=tuple(
            RingPair(
                source=pair.source,
                target=pair.target,
                bytes_per_second=pair.bytes_per_second * dilation,
            )
            for pair in probe.pairs
        ),
    )


def _build_record(
    plan: CollectivesPlan, probe: Probe, timed: list[TimedCollective], load: CoreLoad
) -> CollectivesBench:
    payload = LAB_PAYLOAD if plan.place.emulated else TCP_PAYLOAD.value
    nominal = plan.link_bytes_per_second
    rate = nominal * payload if nominal is not None else probe.ring_bytes_per_second
    links = RingLinks(bytes_per_second=rate, latency_seconds=probe.latency_seconds)
    results = tuple(judge(collective, plan.backend, plan.workers, links) for collective in timed)
    notes = (
        ()
        if nominal is not None
        else (
            "No link speed was given, so the model uses the measured rate of plain sends around the "
            "ring; pass --link to judge the links as well.",
        )
    )
    return CollectivesBench(
        **create_identity(plan.key),
        backend=plan.backend,
        device=plan.device,
        ranks=plan.workers,
        place=plan.place.record(plan.workers),
        link_bytes_per_second=nominal,
        modeled_bytes_per_second=rate,
        probe=probe,
        load=load,
        host=plan.testbed,
        results=results,
        findings=find_slow_collectives(
            results,
            links=links,
            probe=probe,
            load=load,
            link_bytes_per_second=nominal,
            emulated=plan.place.emulated,
        ),
        notes=notes,
    )
