"""gpuyard's own trace: a CSV with a line a job.

    name,submit_s,gpus,min_gpus,max_gpus,duration_s,curve,deadline_s,user
    bert-1,0,4,1,8,7200,1:30 2:58 4:110 8:190,14400,ann

`submit_s`, `gpus`, and `duration_s` (with that many GPUs) or `work` are needed, all else may be left out. A job with
`min_gpus` below `max_gpus` needs a `curve`: its speed by number of GPUs in any unit, or the name of a workload whose
curve is predicted on the cluster, in samples a second. `work` is in the unit of the curve.
"""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gpuyard.errors import UserMistake, quoted
from gpuyard.jobs.curve import Curve
from gpuyard.jobs.simulate.trace import Trace, TraceJob
from gpuyard.jobs.simulate.traces.rows import TraceRow, read_rows
from gpuyard.jobs.simulate.work import SteadyWork
from gpuyard.specs import Cluster

NEEDED = ("submit_s", "gpus")
_MOST_GPUS = 10_000
_MOST_POINTS = 1000
_YES, _NO = {"yes", "true", "1"}, {"no", "false", "0"}


def read_own(path: Path, cluster: Cluster | None = None) -> Trace:
    """The jobs in the order of their submission; on the cluster those curves are predicted that name a workload."""
    curves = _Curves(cluster)
    lines: dict[str, int] = {}
    jobs = [
        _job(row, row.new("name", lines, f"job-{number}"), curves)
        for number, row in enumerate(read_rows(path, NEEDED, what="a trace of gpuyard"), 1)
    ]
    return Trace.of(path, jobs)


def _job(row: TraceRow, name: str, curves: "_Curves") -> TraceJob:
    gpus = row.count("gpus", most=_MOST_GPUS)
    least = row.count("min_gpus", gpus, most=_MOST_GPUS)
    most = row.count("max_gpus", max(gpus, least), most=_MOST_GPUS)
    if not least <= gpus <= most:
        raise row.wrong("gpus", f"expected min_gpus ≤ gpus ≤ max_gpus, got {least}, {gpus}, {most}")
    if not row.text("curve") and least < most:
        raise row.wrong(
            "curve",
            "a job with min_gpus below max_gpus needs one, like '1:30 2:58 4:110', or a workload",
        )
    curve = curves.of(row, gpus, most)
    work = _work(row, gpus, curve)
    if least < gpus:  # a model needs the memory of some GPUs
        least = max(least, int(np.flatnonzero(curve.packed)[0]))
    deadline = row.number("deadline_s") if row.text("deadline_s") else None
    return TraceJob(
        name,
        row.number("submit_s"),
        SteadyWork(work, curve),
        gpus,
        least,
        most,
        row.text("user"),
        row.text("group"),
        deadline,
        row.number("weight", 1.0, least=1e-6, most=1e6),
        int(row.number("priority", 0.0, least=-1e6, most=1e6)),
        _yes(row, "elastic", otherwise=least < most),
        row.number("restart_s", 0.0, most=1e6),
        workload="" if row.text("curve")[:1].isdigit() else row.text("curve"),
    )


def _work(row: TraceRow, gpus: int, curve: Curve) -> float:
    if curve.speed(gpus) <= 0:
        raise row.wrong("gpus", f"it can't run on {gpus}: the model does not fit into their memory")
    if row.text("work"):
        if row.text("duration_s"):
            raise row.wrong("work", "expected either work or duration_s, not both")
        return row.number("work", least=1e-9)
    return row.number("duration_s", least=1e-3) * curve.speed(gpus)


@dataclass
class _Curves:
    """Those that jobs share are made once."""

    cluster: Cluster | None
    made: dict[tuple[str, int], Curve] = field(default_factory=dict)

    def of(self, row: TraceRow, gpus: int, most: int) -> Curve:
        text = row.text("curve")
        key = text, most if text else gpus
        if key not in self.made:
            if not text:
                self.made[key] = Curve.rigid(gpus)
            elif text[0].isdigit():
                self.made[key] = _points(row, text, most)
            else:
                self.made[key] = self._predicted(row, text, most)
        return self.made[key]

    def _predicted(self, row: TraceRow, name: str, most: int) -> Curve:
        if self.cluster is None:
            raise row.wrong(
                "curve",
                f"to predict {quoted(name)}, name the cluster's GPUs too, like --cluster 2x4xt4@10G",
            )
        from gpuyard.catalog.specfiles import read_workload
        from gpuyard.jobs.predicted import predicted_curve

        try:
            curve = predicted_curve(read_workload(name), self.cluster, most)
        except UserMistake as mistake:
            raise row.wrong("curve", str(mistake)) from None
        if curve is None:
            raise row.wrong(
                "curve",
                f"{quoted(name)} can't be predicted on this cluster; write its speeds, like 1:30 2:58",
            )
        return curve


def _points(row: TraceRow, text: str, most: int) -> Curve:
    points: dict[int, float] = {}
    for word in text.split():
        count, colon, speed = word.partition(":")
        try:
            if not colon or not count.isascii() or len(points) >= _MOST_POINTS:
                raise ValueError
            points[int(count)] = float(speed)
        except ValueError:
            raise row.wrong(
                "curve", f"expected GPUs:speed, like 2:58, got {quoted(word)}"
            ) from None
    if any(not 1 <= n <= _MOST_GPUS or not 0 < s < 1e15 for n, s in points.items()):
        raise row.wrong("curve", f"expected 1 to {_MOST_GPUS:,} GPUs and speeds above 0")
    return Curve.of_points(points, most)


def _yes(row: TraceRow, column: str, *, otherwise: bool) -> bool:
    text = row.text(column).lower()
    if text and text not in _YES | _NO:
        raise row.wrong(column, f"expected yes or no, got {quoted(text)}")
    return text in _YES if text else otherwise
