"""Runs a plan: the ranks together, what they time beside the model, and a verdict."""

import contextlib
from collections.abc import Callable, Generator, Iterator
from functools import partial

import psutil

from gpuyard.interpreter import import_path, module_argv
from gpuyard.measure.collectives.expected import LAB_PAYLOAD, RingLinks
from gpuyard.measure.collectives.plan import CollectivesPlan, mpiexec
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
from gpuyard.measure.collectives.verdict import find_slow, judge
from gpuyard.measure.progress import ProgressMeter, ProgressUpdate, Tell
from gpuyard.measure.ranks import running_ranks
from gpuyard.measure.record import made_now
from gpuyard.predict.constants import TCP_PAYLOAD
from gpuyard.run.launch import Crew
from gpuyard.run.places import Here
from gpuyard.run.protocol import SILENCE_SECONDS
from gpuyard.run.ranks import private_directory, run_crews
from gpuyard.units import format_bytes

_WORKER = "gpuyard.measure.collectives.worker"
_MPI_WORKER = "gpuyard.measure.collectives.mpi_worker"
_LOOK_SECONDS = 0.2


def run_collectives(
    plan: CollectivesPlan,
    tell: Tell = lambda _progress: None,
    *,
    silence_seconds: float = SILENCE_SECONDS,
) -> CollectivesBench:
    """Time every operation at every size; nothing outlives this, however it ends."""
    before = psutil.cpu_percent(interval=_LOOK_SECONDS) / 100
    probe: Probe | None = None
    timed: list[TimedCollective] = []
    during = before
    meter = ProgressMeter(plan.exchanges)
    with _events(plan, silence_seconds) as events:
        for event in events:
            match event:
                case Started(operation=None):
                    tell(ProgressUpdate("the links alone", 0.0, len(plan.exchanges)))
                case Started():
                    what = f"{event.operation} of {format_bytes(event.bytes)}"
                    tell(meter.at((event.operation, event.bytes), 0.0, what))
                case Probe():
                    probe = _undilated_probe(event, plan.place.dilation)
                    psutil.cpu_percent()  # counts from here: starting Python is not exchanging
                case TimedCollective():
                    timed.append(_undilated(event, plan.place.dilation))
                    tell(meter.at((event.operation, event.bytes), 1.0, event.operation))
                    if len(timed) == len(plan.exchanges):
                        during = psutil.cpu_percent() / 100
    if probe is None:
        raise RuntimeError("the ranks ended without a word")
    cores = {core for cores in plan.cores_by_worker for core in cores}
    load = CoreLoad(
        before=before,
        during=during,
        ranks_per_core=plan.workers / len(cores) if cores else 0.0,
    )
    return _bench(plan, probe, timed, load)


def _events(
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
        return _under_mpi(plan, job)
    return running_ranks(plan.place, plan.cores_by_worker, job, worker=_WORKER, read=read_event)


@contextlib.contextmanager
def _under_mpi(
    plan: CollectivesPlan, job: Callable[..., CollectivesJob]
) -> Iterator[Iterator[RankEvent]]:
    # one command for all ranks: mpiexec starts them, and hands stdin to the first
    variables = {**import_path(), "OMP_NUM_THREADS": str(len(plan.cores_by_worker[0]))}
    argv = [mpiexec() or "mpiexec", "-n", str(plan.workers), *module_argv(_MPI_WORKER)]
    with private_directory() as directory:
        # mpiexec decides where its ranks are
        leader = job(rank=0, processes=plan.workers, directory=str(directory), cores=())
        crew = Crew((leader,), Here().command(0, argv, variables))
        ranks: Generator[RankEvent, None, None] = run_crews([crew], read_event)
        with contextlib.closing(ranks) as events:
            yield events


def _undilated(timed: TimedCollective, dilation: float) -> TimedCollective:
    return timed.model_copy(update={"seconds": tuple(s / dilation for s in timed.seconds)})


def _undilated_probe(probe: Probe, dilation: float) -> Probe:
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


def _bench(
    plan: CollectivesPlan, probe: Probe, timed: list[TimedCollective], load: CoreLoad
) -> CollectivesBench:
    payload = LAB_PAYLOAD if plan.place.emulated else TCP_PAYLOAD.value
    sold = plan.link_bytes_per_second
    rate = sold * payload if sold is not None else probe.ring_bytes_per_second
    links = RingLinks(bytes_per_second=rate, latency_seconds=probe.latency_seconds)
    results = tuple(judge(one, plan.backend, plan.workers, links) for one in timed)
    notes = (
        ()
        if sold is not None
        else (
            "No link speed was given, so the model takes the rate that plain sends around the ring "
            "reached; pass --link to judge the links as well.",
        )
    )
    return CollectivesBench(
        **made_now(plan.key),
        backend=plan.backend,
        device=plan.device,
        ranks=plan.workers,
        place=plan.place.record(plan.workers),
        link_bytes_per_second=sold,
        reckoned_bytes_per_second=rate,
        probe=probe,
        load=load,
        host=plan.testbed,
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
