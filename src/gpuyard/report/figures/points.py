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
    def axis_name(self) -> str:
        """A machine without GPUs has workers; the studies say GPUs for what they predict."""
        elsewhere = any(not curve.here for curve in self.curves)
        if not self.measured:
            return "GPUs"
        return "GPUs (here: workers)" if elsewhere else "workers"


def points_at(workload: WorkloadResult, batch: int) -> Points:
    """Select one batch size."""
    measured = {p.workers: p for p in workload.measured if p.batch_per_worker == batch}
    strategies = Counter(p.strategy for curve in workload.curves for p in curve.predictions)
    usual = {strategy for strategy, _ in strategies.most_common(1)}
    curves = []
    for curve in workload.curves:
        chosen = {p.gpus: p for p in curve.predictions if p.batch_per_gpu == batch}
        if chosen:
            other = sorted({p.strategy for p in chosen.values()} - usual)
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
