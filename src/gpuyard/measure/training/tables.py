"""Training runs as tables: those that are believed, and those that were rejected."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from gpuyard.measure.kind import CourseMoment, FlatRows, ResultKind, Shown, columns_of
from gpuyard.measure.training.records import Measurement, Rejection, place_words
from gpuyard.measure.training.sweep import Sweep, SweepPoint
from gpuyard.table import Column, Table
from gpuyard.units import (
    counted,
    format_bytes,
    format_interval,
    format_per_second,
    format_seconds,
    format_share,
)

_COLUMNS: Mapping[str, Callable[[Measurement], object]] = {
    **columns_of("id created_at kind workload"),
    "model": lambda m: m.spec.get("model", ""),
    "precision": lambda m: m.spec.get("precision", ""),
    **columns_of("strategy device workers batch_per_worker samples_per_second low high"),
    **columns_of(
        "step_seconds compute_seconds exposed_communication_seconds input_seconds", at="step"
    ),
    **columns_of("all_reduce_bytes all_reduce_seconds loss_first loss_last"),
    **columns_of("threads_per_worker host cpu_model", at="provenance"),
    "gpus": lambda m: "; ".join(m.provenance.gpus),
    **columns_of("torch gpuyard data_source", at="provenance"),
    "key": lambda m: m.key,
    "remedy": lambda m: m.remedy.label,
    "synthetic_gpu": lambda m: m.synthetic.gpu if m.synthetic else "",
    "place": lambda m: m.place.kind,
    **columns_of("link_bytes_per_second dilation", at="place"),
    "doubt": lambda m: m.doubt or "",
}


def device_of(measurement: Measurement) -> str:
    """`cpu`, `cuda`, or the GPU that was emulated."""
    synthetic = measurement.synthetic
    return f"synthetic {synthetic.gpu}" if synthetic else measurement.device


def plan_listing(sweep: Sweep, stored: Collection[str]) -> Table:
    """What would be measured of one sweep."""
    cores = len(sweep.cores_by_worker[0])  # 0: other hosts say themselves what a worker gets
    return Table(
        f"{sweep.title}, {sweep.seconds_per_point:g} s per point"
        + (f", {counted(cores, 'core')} per worker" if cores else ""),
        ["workers", "batch per worker", ""],
        [[str(p.workers), str(p.batch_per_worker), _state(p, stored)] for p in sweep.points],
    )


def matrix_listing(title: str, sweeps: Sequence[Sweep], stored: Collection[str]) -> Table:
    """What would be measured of a sweep file."""
    rows = [
        [sweep.label, str(p.workers), str(p.batch_per_worker), _state(p, stored)]
        for sweep in sweeps
        for p in sweep.points
    ]
    return Table(f"{title}: {len(rows)} points", ["", "workers", "batch", ""], rows)


def _state(point: SweepPoint, stored: Collection[str]) -> str:
    return "in the store" if point.key in stored else "would be measured"


def scaling_listing(title: str, measurements: Sequence[Measurement]) -> Table:
    """The runs of one sweep, each beside those with the fewest workers at the same batch."""
    fewest = min(m.workers for m in measurements)
    one_worker = {
        m.batch_per_worker: m.samples_per_second / m.workers
        for m in measurements
        if m.workers == fewest
    }
    columns = (Column("id", 1), "workers", "batch", "samples/s", Column("±", 2), "efficiency")
    return Table(
        f"{title}, {measurements[0].provenance.data_source}",
        [*columns, "step", Column("compute", 3), "exposed comm.", Column("input", 4)],
        [
            [
                m.id,
                str(m.workers),
                str(m.batch_per_worker),
                format_per_second(m.samples_per_second),
                _interval(m),
                format_share(m.samples_per_second / m.workers / one_worker[m.batch_per_worker]),
                format_seconds(m.step.step_seconds),
                format_seconds(m.step.compute_seconds),
                format_seconds(m.step.exposed_communication_seconds),
                format_seconds(m.step.input_seconds),
            ]
            for m in measurements
        ],
    )


def sweep_listing(title: str, measurements: Sequence[Measurement]) -> Table:
    """The runs of a sweep file, whatever differs between them."""
    columns = ("workload", Column("device", 2), Column("where", 1), "remedy", "workers", "batch")
    return Table(
        title,
        [*columns, "samples/s", "step", "exposed comm."],
        [
            [
                m.workload,
                device_of(m),
                place_words(m.place),
                m.remedy.label,
                str(m.workers),
                str(m.batch_per_worker),
                format_per_second(m.samples_per_second),
                format_seconds(m.step.step_seconds),
                format_seconds(m.step.exposed_communication_seconds),
            ]
            for m in measurements
        ],
    )


def _listing(measurements: Sequence[Measurement]) -> Table:
    columns = (
        "id",
        Column("made (UTC)", 3),
        "workload",
        Column("strategy", 4),
        Column("remedy", 2),
        Column("device", 5),
    )
    return Table(
        "Training runs",
        [*columns, "workers", "batch", "samples/s", Column("±", 1)],
        [
            [
                m.id,
                m.made,
                m.workload,
                m.strategy,
                m.remedy.label,
                device_of(m),
                str(m.workers),
                str(m.batch_per_worker),
                format_per_second(m.samples_per_second),
                _interval(m),
            ]
            for m in measurements
        ],
    )


def _rejected_listing(rejected: Sequence[Rejection]) -> Table:
    columns = (
        "id",
        Column("made (UTC)", 1),
        "workload",
        "workers",
        "batch",
        Column("remedy", 2),
        Column("where", 3),
    )
    return Table(
        "Not credible, so not among the measurements",
        [*columns, "reason"],
        [
            [
                r.id,
                r.made,
                r.measurement.workload,
                str(r.measurement.workers),
                str(r.measurement.batch_per_worker),
                r.measurement.remedy.label,
                place_words(r.measurement.place),
                r.reason,
            ]
            for r in rejected
        ],
    )


def _show(m: Measurement, rejected: str = "") -> Shown:
    rows = [
        *([["rejected", rejected]] if rejected else []),
        ["made (UTC)", m.created_at],
        ["strategy", f"{m.strategy} on {device_of(m)}"],
        ["remedy", m.remedy.label],
        ["where", place_words(m.place)],
        ["workers", str(m.workers)],
        ["batch per worker", str(m.batch_per_worker)],
        ["samples/s", format_per_second(m.samples_per_second)],
        ["95 % interval", format_interval(m.low, m.high)],
        ["step", format_seconds(m.step.step_seconds)],
        ["  compute", format_seconds(m.step.compute_seconds)],
        ["  exposed communication", format_seconds(m.step.exposed_communication_seconds)],
        ["  input", format_seconds(m.step.input_seconds)],
    ]
    if m.all_reduce_bytes is not None and m.all_reduce_seconds is not None:
        took = format_seconds(m.all_reduce_seconds)
        rows.append(["bare all-reduce", f"{format_bytes(m.all_reduce_bytes)} in {took}"])
    if m.loss_first is not None and m.loss_last is not None:
        rows.append(["loss", f"{m.loss_first:.4g} at first, {m.loss_last:.4g} at last"])
    rows.append(["windows", f"{len(m.windows)} of {counted(m.windows[0].steps, 'step')}"])
    for name, value in m.provenance.model_dump().items():
        shown = format_bytes(value) if name == "memory_bytes" else _plain(value)
        rows.append([name.removesuffix("_bytes").replace("_", " "), shown])
    return [Table(f"{m.workload}, measurement {m.id}", ["", ""], rows)]


def _interval(m: Measurement) -> str:
    return f"{100 * (m.high - m.low) / 2 / m.samples_per_second:.1f} %"


def _plain(value: object) -> str:
    if isinstance(value, tuple | list):
        return "; ".join(
            ",".join(map(str, v)) if isinstance(v, tuple | list) else str(v) for v in value
        )
    return str(value)


def _course(m: Measurement) -> Iterator[CourseMoment]:
    step = 0
    for window in m.windows:
        step += window.steps
        trained = window.steps * m.batch_per_worker * m.workers
        values = {
            "samples_per_second": trained / window.seconds,
            "step_seconds": window.seconds / window.steps,
        }
        yield CourseMoment(step, window.seconds, values)


TRAIN = ResultKind(
    "train",
    Measurement,
    made_by="gpuyard bench train spoken-digits-linear",
    listing=_listing,
    show=_show,
    flat=FlatRows(lambda m: [(m,)], _COLUMNS),
    course=_course,
    of_workloads=True,
)
REJECTED = ResultKind(
    "rejected",
    Rejection,
    made_by="gpuyard bench sweep FILE",
    listing=_rejected_listing,
    show=lambda r: _show(r.measurement, r.reason),
    flat=FlatRows(lambda r: [(r.measurement,)], _COLUMNS),
    of_workloads=True,
)
