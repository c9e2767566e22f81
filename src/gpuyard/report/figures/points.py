"""Selects the points of one workload for charts: its batch sizes, and the points at one of them."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gpuyard.predictor import Prediction
from gpuyard.report.figures.frame import finite_or_none
from gpuyard.report.figures.marks import get_local_platform
from gpuyard.study.result import MeasuredPoint, WorkloadResult


@dataclass(frozen=True)
class PredictedCurve:
    """The predictions for one platform by number of GPUs."""

    label: str
    platform: str
    here: bool
    by_gpus: dict[int, Prediction]

    def sample(
        self, axis: Sequence[int], value: Callable[[Prediction], float]
    ) -> list[float | None]:
        """Return a value for each GPU count on the axis, or None if there is no prediction."""
        predictions = [self.by_gpus.get(gpus) for gpus in axis]
        return [None if p is None else finite_or_none(value(p)) for p in predictions]


@dataclass(frozen=True)
class Points:
    """All points of a chart over the number of GPUs."""

    here: str
    measured: dict[int, MeasuredPoint]
    curves: tuple[PredictedCurve, ...]

    @property
    def gpus(self) -> list[int]:
        """The GPU counts on the axis."""
        predicted = {count for curve in self.curves for count in curve.by_gpus}
        return sorted(predicted | set(self.measured))

    @property
    def doubtful(self) -> frozenset[str]:
        """The axis labels of the GPU counts with a doubtful run."""
        return frozenset(str(gpus) for gpus, p in self.measured.items() if p.doubt is not None)

    @property
    def axis_name(self) -> str:
        """The name of the axis: measurements count workers, and predictions for other platforms count GPUs."""
        has_other_platforms = any(not curve.here for curve in self.curves)
        if not self.measured:
            return "GPUs"
        return "GPUs (here: workers)" if has_other_platforms else "workers"


def select_points(workload: WorkloadResult, batch: int) -> Points:
    """Select the points at one batch size that fit into memory.

    At the workload's own batch size, a platform with only other batch sizes is shown at its smallest one, and its
    label says so.
    """
    measured = {p.workers: p for p in workload.measured if p.batch_per_worker == batch}
    strategies = Counter(p.strategy for curve in workload.curves for p in curve.predictions)
    common = {strategy for strategy, _ in strategies.most_common(1)}
    curves = []
    for curve in workload.curves:
        batches = {p.batch_per_gpu for p in curve.predictions}
        use_other = batches and batch not in batches and batch == workload.batch_per_gpu
        curve_batch = min(batches) if use_other else batch
        selected = {
            p.gpus: p
            for p in curve.predictions
            if p.batch_per_gpu == curve_batch and p.fits is not False
        }
        if selected:
            differences: list[str] = [*sorted({p.strategy for p in selected.values()} - common)]
            if curve_batch != batch and f"batch {curve_batch}" not in curve.platform:
                differences.append(f"batch {curve_batch}")
            suffix = f" ({', '.join(differences)})" if differences else ""
            label = f"{curve.platform}{suffix}"
            ordered = dict(sorted(selected.items()))
            curves.append(PredictedCurve(label, curve.platform, curve.here, ordered))
    return Points(get_local_platform(workload), dict(sorted(measured.items())), tuple(curves))


def get_single_gpu_rate(rates: Iterable[tuple[int, float]]) -> float | None:
    """Samples/s a GPU at the smallest count: what ideal scaling would keep."""
    for gpus, samples_per_second in sorted(rates):
        return samples_per_second / gpus
    return None


def list_batches(workload: WorkloadResult) -> tuple[int, ...]:
    """List every batch size that has a point; configurations that do not fit into memory have none."""
    measured = {point.batch_per_worker for point in workload.measured}
    predicted = {
        p.batch_per_gpu
        for curve in workload.curves
        for p in curve.predictions
        if p.fits is not False
    }
    return tuple(sorted(measured | predicted))


def choose_reference_batch(workload: WorkloadResult) -> int | None:
    """Choose the workload's own batch size, otherwise the one that most platforms and points share.

    Of several equally common ones, the middle one is chosen.
    """
    if workload.batch_per_gpu in list_batches(workload):
        return workload.batch_per_gpu
    sources: Counter[int] = Counter({p.batch_per_worker for p in workload.measured})
    points: Counter[int] = Counter(p.batch_per_worker for p in workload.measured)
    for curve in workload.curves:
        sources.update({p.batch_per_gpu for p in curve.predictions})
        points.update(p.batch_per_gpu for p in curve.predictions)
    if not sources:
        return None
    highest = max((sources[batch], points[batch]) for batch in sources)
    ties = sorted(batch for batch in sources if (sources[batch], points[batch]) == highest)
    return ties[len(ties) // 2]
