"""Which per-GPU batch sizes a workload was measured or predicted at, and which one to show first."""

from collections import Counter

from gpuyard.study.result import WorkloadResult


def batches_of(workload: WorkloadResult) -> tuple[int, ...]:
    """Every batch size that has a point."""
    measured = {point.batch_per_worker for point in workload.measured}
    predicted = {p.batch_per_gpu for curve in workload.curves for p in curve.predictions}
    return tuple(sorted(measured | predicted))


def reference_batch(workload: WorkloadResult) -> int | None:
    """The batch size that most platforms and most points share; of equals, the middle one."""
    sources: Counter[int] = Counter({p.batch_per_worker for p in workload.measured})
    points: Counter[int] = Counter(p.batch_per_worker for p in workload.measured)
    for curve in workload.curves:
        sources.update({p.batch_per_gpu for p in curve.predictions})
        points.update(p.batch_per_gpu for p in curve.predictions)
    if not sources:
        return None
    most = max((sources[batch], points[batch]) for batch in sources)
    equals = sorted(batch for batch in sources if (sources[batch], points[batch]) == most)
    return equals[len(equals) // 2]
