"""Measures all remedies with one set of ranks, so that they run under the same conditions."""

from functools import partial

from gpuyard.measure.progress import ProgressCallback, ProgressMeter
from gpuyard.measure.ranks import launch_ranks
from gpuyard.measure.record import create_identity, hash_key
from gpuyard.measure.relief.plan import ReliefPlan
from gpuyard.measure.relief.records import ReliefJob, ReliefResult, RemedyRun, read_event
from gpuyard.measure.training.plan import complete_sweep

_WORKER = "gpuyard.measure.relief.worker"


def run_relief(
    plan: ReliefPlan, on_progress: ProgressCallback = lambda _progress: None
) -> ReliefResult:
    """Train with plain DDP and with each remedy, one after another."""
    sweep, processes = complete_sweep(plan.sweep), plan.workers
    runs: list[RemedyRun] = []
    meter = ProgressMeter(plan.remedies)
    job = partial(
        ReliefJob,
        **sweep.job_fields(),
        workers=processes,
        batches=(plan.batch_per_worker,),
        optimizer="adam",
        remedies=plan.remedies,
        steps=plan.steps,
    )
    with launch_ranks(
        sweep.place,
        sweep.cores_by_worker[:processes],
        job,
        worker=_WORKER,
        read=read_event,
        launcher=sweep.launcher,
    ) as events:
        for event in events:
            if isinstance(event, RemedyRun):
                runs.append(event)
                on_progress(meter.advance(event.remedy, 1.0, event.remedy.label))
            else:
                remedy = plan.remedies[event.number]
                on_progress(meter.advance(remedy, event.fraction, remedy.label))
    return ReliefResult(
        **create_identity(hash_key({**plan.describe(), "host": sweep.testbed.fingerprint()})),
        host=sweep.testbed,
        predicted_gains=plan.predicted_gains,
        workload=sweep.workload.name,
        workers=processes,
        batch_per_worker=plan.batch_per_worker,
        place=sweep.place.record(processes),
        tolerance=plan.tolerance,
        precision=sweep.workload.precision,
        runs=tuple(runs),
    )
