"""Running it: one set of ranks for all remedies, so that they meet the same machine."""

import contextlib
from collections.abc import Callable, Generator

from gpuyard.measure.bench_host import new_record
from gpuyard.measure.lock import only_one_measures
from gpuyard.measure.relief.plan import ReliefPlan
from gpuyard.measure.relief.records import (
    ReliefJob,
    ReliefProgress,
    ReliefResult,
    Relieved,
    read_event,
)
from gpuyard.measure.training.sweep_ranks import run_where_planned, told_all
from gpuyard.run.ranks import private_directory

_SILENCE_SECONDS = 600.0
_WORKER = "gpuyard.measure.relief.worker"


def run_relief(
    plan: ReliefPlan,
    on_event: Callable[[ReliefProgress | Relieved], None] = lambda _event: None,
) -> ReliefResult:
    """Train with plain DDP and with each remedy, one after the other."""
    sweep, processes = plan.sweep, plan.workers
    runs: list[Relieved] = []
    with only_one_measures(), private_directory() as directory:
        jobs = [
            ReliefJob(
                **told_all(sweep, rank, processes, directory),
                workers=processes,
                batches=(plan.batch_per_worker,),
                silence_seconds=_SILENCE_SECONDS,
                optimizer="adam",
                remedies=plan.remedies,
                steps=plan.steps,
            )
            for rank in range(processes)
        ]
        ranks: Generator[ReliefProgress | Relieved, None, None] = run_where_planned(
            sweep,
            jobs,
            parse=read_event,
            worker=_WORKER,
        )
        with contextlib.closing(ranks) as events:
            for event in events:
                on_event(event)
                if isinstance(event, Relieved):
                    runs.append(event)
    return ReliefResult(
        **new_record(plan.describe(), sweep.host).model_dump(),
        foreseen=plan.foreseen,
        workload=sweep.workload.name,
        workers=processes,
        batch_per_worker=plan.batch_per_worker,
        place=sweep.place.record(processes),
        tolerance=plan.tolerance,
        runs=tuple(runs),
    )
