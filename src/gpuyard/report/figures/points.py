"""The points of one workload: at which batch sizes, and at one of them by platform and number of GPUs."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gpuyard.predict import Prediction
from gpuyard.report.figures.frame import finite
from gpuyard.report.figures.marks import here_platform
from gpuyard.study.result import MeasuredPoint, WorkloadResult


@dataclass(frozen=True)
class PredictedCurve:
    """One platform's predictions by number of GPUs."""

    label: str
    platform: str
    here: bool
    by_gpus: dict[int, Prediction]

    def along(
        self, axis: Sequence[int], value: Callable[[Prediction], float]
    ) -> list[float | None]:
        """One value for each count on the axis, None where nothing was predicted."""
        chosen = [self.by_gpus.get(gpus) for gpus in axis]
        return [None if p is None else finite(value(p)) for p in chosen]


@dataclass(frozen=True)
class Points:
    """All that a chart over the number of GPUs shows."""

    here: str
    measured: dict[int, MeasuredPoint]
    curves: tuple[PredictedCurve, ...]

    @property
    def gpus(self) -> list[int]:
        """The counts on the axis."""
        predicted = {count for curve in self.curves for count in curve.by_gpus}
        return sorted(predicted | set(self.measured))

    @property
    def doubtful(self) -> frozenset[str]:
        """The counts whose run is not credible, as the axis names them."""
        return frozenset(str(gpus) for gpus, p in self.measured.items() if p.doubt is not None)

    @property
    def axis_name(self) -> str:
        """A machine without GPUs has workers; the studies say GPUs for what they predict."""
        elsewhere = any(not curve.here for curve in self.curves)
        if not self.measured:
            return "GPUs"
        return "GPUs (here: workers)" if elsewhere else "workers"


def points_at(workload: WorkloadResult, batch: int) -> Points:
    """Select one batch size, and what fits into memory at it.

    With the workload's own batch size, a platform that has another one is shown at that, and says so.
    """
    measured = {p.workers: p for p in workload.measured if p.batch_per_worker == batch}
    strategies = Counter(p.strategy for curve in workload.curves for p in curve.predictions)
    usual = {strategy for strategy, _ in strategies.most_common(1)}
    curves = []
    for curve in workload.curves:
        own = {p.batch_per_gpu for p in curve.predictions}
        at = min(own) if batch not in own and own and batch == workload.batch_per_gpu else batch
        chosen = {
            p.gpus: p for p in curve.predictions if p.batch_per_gpu == at and p.fits is not False
        }
        if chosen:
            other: list[str] = [*sorted({p.strategy for p in chosen.values()} - usual)]
            if at != batch and f"batch {at}" not in curve.platform:
                other.append(f"batch {at}")
            label = f"{curve.platform} ({', '.join(other)})" if other else curve.platform
            ordered = dict(sorted(chosen.items()))
            curves.append(PredictedCurve(label, curve.platform, curve.here, ordered))
    return Points(here_platform(workload), dict(sorted(measured.items())), tuple(curves))


def one_gpu_rate(rates: Iterable[tuple[int, float]]) -> float | None:
    """Samples/s a GPU at the smallest count: what ideal scaling would keep."""
    for gpus, samples_per_second in sorted(rates):
        return samples_per_second / gpus
    return None


def batches_of(workload: WorkloadResult) -> tuple[int, ...]:
    """Every batch size that has a point; what does not fit has none."""
    measured = {point.batch_per_worker for point in workload.measured}
    predicted = {
        p.batch_per_gpu
        for curve in workload.curves
        for p in curve.predictions
        if p.fits is not False
    }
    return tuple(sorted(measured | predicted))


def reference_batch(workload: WorkloadResult) -> int | None:
    """The workload's own; else the one that most platforms and points share, of equals the middle one."""
    if workload.batch_per_gpu in batches_of(workload):
        return workload.batch_per_gpu
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
