"""Running it: one set of ranks for all remedies, so that they meet the same machine."""

from functools import partial

from gpuyard.measure.progress import ProgressMeter, Tell
from gpuyard.measure.ranks import running_ranks
from gpuyard.measure.record import key_of, made_now
from gpuyard.measure.relief.plan import ReliefPlan
from gpuyard.measure.relief.records import ReliefJob, ReliefResult, Relieved, read_event
from gpuyard.measure.training.sweep import completed

_WORKER = "gpuyard.measure.relief.worker"


def run_relief(plan: ReliefPlan, tell: Tell = lambda _progress: None) -> ReliefResult:
    """Train with plain DDP and with each remedy, one after the other."""
    sweep, processes = completed(plan.sweep), plan.workers
    runs: list[Relieved] = []
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
    with running_ranks(
        sweep.place,
        sweep.cores_by_worker[:processes],
        job,
        worker=_WORKER,
        read=read_event,
        launcher=sweep.launcher,
    ) as events:
        for event in events:
            if isinstance(event, Relieved):
                runs.append(event)
                tell(meter.at(event.remedy, 1.0, event.remedy.label))
            else:
                remedy = plan.remedies[event.number]
                tell(meter.at(remedy, event.fraction, remedy.label))
    return ReliefResult(
        **made_now(key_of({**plan.describe(), "host": sweep.testbed.fingerprint()})),
        host=sweep.testbed,
        foreseen=plan.foreseen,
        workload=sweep.workload.name,
        workers=processes,
        batch_per_worker=plan.batch_per_worker,
        place=sweep.place.record(processes),
        tolerance=plan.tolerance,
        precision=sweep.workload.precision,
        runs=tuple(runs),
    )
