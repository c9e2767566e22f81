"""gpuyard's own trace format: a CSV with one line per job.

    name,submit_s,gpus,min_gpus,max_gpus,duration_s,curve,deadline_s,user
    bert-1,0,4,1,8,7200,1:30 2:58 4:110 8:190,14400,ann

`submit_s`, `gpus`, and either `duration_s` (with that many GPUs) or `work` are required. A job with `min_gpus` below
`max_gpus` also needs a `curve`: its speed by number of GPUs in any unit, or the name of a workload. A workload's curve is
predicted on the cluster in samples per second. `work` is in the unit of the curve.
"""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gpuyard.errors import UserMistake, quote
from gpuyard.jobs.simulate.trace import Trace, TraceJob
from gpuyard.jobs.simulate.traces.csv_rows import TraceRow, read_rows
from gpuyard.jobs.simulate.work import SteadyWork
from gpuyard.policies.curve import Curve
from gpuyard.specs import Cluster

REQUIRED = ("submit_s", "gpus")
_MAX_GPUS = 10_000
_MAX_POINTS = 1000
_YES, _NO = {"yes", "true", "1"}, {"no", "false", "0"}


def read_gpuyard_csv(path: Path, cluster: Cluster | None = None) -> Trace:
    """Read the jobs; curves that name a workload are predicted on the cluster."""
    curves = _CurveCache(cluster)
    lines: dict[str, int] = {}
    jobs = [
        _parse_job(row, row.unique_text("name", lines, f"job-{number}"), curves)
        for number, row in enumerate(read_rows(path, REQUIRED, what="a gpuyard trace"), 1)
    ]
    return Trace.from_jobs(path, jobs)


def _parse_job(row: TraceRow, name: str, curves: "_CurveCache") -> TraceJob:
    gpus = row.count("gpus", maximum=_MAX_GPUS)
    min_gpus = row.count("min_gpus", gpus, maximum=_MAX_GPUS)
    max_gpus = row.count("max_gpus", max(gpus, min_gpus), maximum=_MAX_GPUS)
    if not min_gpus <= gpus <= max_gpus:
        raise row.mistake(
            "gpus", f"expected min_gpus ≤ gpus ≤ max_gpus, got {min_gpus}, {gpus}, {max_gpus}"
        )
    if not row.text("curve") and min_gpus < max_gpus:
        raise row.mistake(
            "curve",
            "a job with min_gpus below max_gpus needs a curve, like '1:30 2:58 4:110', or a workload",
        )
    curve = curves.get(row, gpus, max_gpus)
    work = _parse_work(row, gpus, curve)
    if min_gpus < gpus:  # a large model may need the memory of several GPUs
        min_gpus = max(min_gpus, int(np.flatnonzero(curve.packed)[0]))
    deadline = row.number("deadline_s") if row.text("deadline_s") else None
    return TraceJob(
        name,
        row.number("submit_s"),
        SteadyWork(work, curve),
        gpus,
        min_gpus,
        max_gpus,
        row.text("user"),
        row.text("group"),
        deadline,
        row.number("weight", 1.0, minimum=1e-6, maximum=1e6),
        int(row.number("priority", 0.0, minimum=-1e6, maximum=1e6)),
        _parse_yes_no(row, "elastic", default=min_gpus < max_gpus),
        row.number("restart_s", 0.0, maximum=1e6),
        workload="" if row.text("curve")[:1].isdigit() else row.text("curve"),
    )


def _parse_work(row: TraceRow, gpus: int, curve: Curve) -> float:
    if curve.speed(gpus) <= 0:
        raise row.mistake(
            "gpus", f"cannot run on {gpus} GPUs: the model does not fit in their memory"
        )
    if row.text("work"):
        if row.text("duration_s"):
            raise row.mistake("work", "expected either work or duration_s, not both")
        return row.number("work", minimum=1e-9)
    return row.number("duration_s", minimum=1e-3) * curve.speed(gpus)


@dataclass
class _CurveCache:
    """Curves that jobs share."""

    cluster: Cluster | None
    curves: dict[tuple[str, int], Curve] = field(default_factory=dict)

    def get(self, row: TraceRow, gpus: int, max_gpus: int) -> Curve:
        text = row.text("curve")
        key = text, max_gpus if text else gpus
        if key not in self.curves:
            if not text:
                self.curves[key] = Curve.rigid(gpus)
            elif text[0].isdigit():
                self.curves[key] = _parse_points(row, text, max_gpus)
            else:
                self.curves[key] = self._predict(row, text, max_gpus)
        return self.curves[key]

    def _predict(self, row: TraceRow, name: str, max_gpus: int) -> Curve:
        if self.cluster is None:
            raise row.mistake(
                "curve",
                f"to predict {quote(name)}, name the cluster's GPUs too, like --on 2x4xt4@10G",
            )
        from gpuyard.catalog.specfiles import read_workload
        from gpuyard.jobs.curve_prediction import predict_curve

        try:
            curve = predict_curve(read_workload(name), self.cluster, max_gpus)
        except UserMistake as mistake:
            raise row.mistake("curve", str(mistake)) from None
        if curve is None:
            raise row.mistake(
                "curve",
                f"{quote(name)} cannot be predicted on this cluster; write its speeds, like 1:30 2:58",
            )
        return curve


def _parse_points(row: TraceRow, text: str, max_gpus: int) -> Curve:
    points: dict[int, float] = {}
    for word in text.split():
        count, colon, speed = word.partition(":")
        try:
            if not colon or not count.isascii() or len(points) >= _MAX_POINTS:
                raise ValueError
            points[int(count)] = float(speed)
        except ValueError:
            raise row.mistake(
                "curve", f"expected GPUs:speed, like 2:58, got {quote(word)}"
            ) from None
    if any(not 1 <= n <= _MAX_GPUS or not 0 < s < 1e15 for n, s in points.items()):
        raise row.mistake("curve", f"expected 1 to {_MAX_GPUS:,} GPUs and speeds above 0")
    return Curve.from_points(points, max_gpus)


def _parse_yes_no(row: TraceRow, column: str, *, default: bool) -> bool:
    text = row.text(column).lower()
    if text and text not in _YES | _NO:
        raise row.mistake(column, f"expected yes or no, got {quote(text)}")
    return text in _YES if text else default
