"""Tables of training runs, both valid and rejected."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from gpuyard.measure.kind import Content, CsvLayout, HistoryPoint, ResultKind, build_columns
from gpuyard.measure.training.records import Measurement, Rejection, describe_place
from gpuyard.measure.training.sweep import Sweep, SweepPoint
from gpuyard.table import Column, Table
from gpuyard.units import (
    format_bytes,
    format_count,
    format_interval,
    format_per_second,
    format_seconds,
    format_share,
)

_COLUMNS: Mapping[str, Callable[[Measurement], object]] = {
    **build_columns("id created_at kind workload"),
    "model": lambda m: m.spec.get("model", ""),
    "precision": lambda m: m.spec.get("precision", ""),
    **build_columns("strategy device workers batch_per_worker samples_per_second low high"),
    **build_columns(
        "step_seconds compute_seconds exposed_communication_seconds input_seconds", parent="step"
    ),
    **build_columns("all_reduce_bytes all_reduce_seconds loss_first loss_last"),
    **build_columns("threads_per_worker host cpu_model", parent="provenance"),
    "gpus": lambda m: "; ".join(m.provenance.gpus),
    **build_columns("torch gpuyard data_source", parent="provenance"),
    "key": lambda m: m.key,
    "remedy": lambda m: m.remedy.label,
    "synthetic_gpu": lambda m: m.synthetic.gpu if m.synthetic else "",
    "place": lambda m: m.place.kind,
    **build_columns("link_bytes_per_second dilation", parent="place"),
    "doubt": lambda m: m.doubt or "",
}


def describe_device(measurement: Measurement) -> str:
    """Return `cpu`, `cuda`, or the emulated GPU."""
    synthetic = measurement.synthetic
    return f"synthetic {synthetic.gpu}" if synthetic else measurement.device


def build_plan_table(sweep: Sweep, stored: Collection[str]) -> Table:
    """List the points of one sweep that would be measured."""
    cores = len(sweep.cores_by_worker[0])  # 0: other hosts decide how many cores a worker gets
    return Table(
        f"{sweep.title}, {sweep.seconds_per_point:g} s per point"
        + (f", {format_count(cores, 'core')} per worker" if cores else ""),
        ["workers", "batch per worker", ""],
        [[str(p.workers), str(p.batch_per_worker), _format_state(p, stored)] for p in sweep.points],
    )


def build_matrix_table(title: str, sweeps: Sequence[Sweep], stored: Collection[str]) -> Table:
    """List the points of a sweep file that would be measured."""
    rows = [
        [sweep.label, str(p.workers), str(p.batch_per_worker), _format_state(p, stored)]
        for sweep in sweeps
        for p in sweep.points
    ]
    return Table(f"{title}: {len(rows)} points", ["", "workers", "batch", ""], rows)


def _format_state(point: SweepPoint, stored: Collection[str]) -> str:
    return "in the store" if point.key in stored else "would be measured"


def build_scaling_table(title: str, measurements: Sequence[Measurement]) -> Table:
    """List the runs of one sweep with their efficiency relative to the fewest workers at the same batch."""
    min_workers = min(m.workers for m in measurements)
    baseline_by_batch = {
        m.batch_per_worker: m.samples_per_second / m.workers
        for m in measurements
        if m.workers == min_workers
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
                _format_relative_error(m),
                format_share(
                    m.samples_per_second / m.workers / baseline_by_batch[m.batch_per_worker]
                ),
                format_seconds(m.step.step_seconds),
                format_seconds(m.step.compute_seconds),
                format_seconds(m.step.exposed_communication_seconds),
                format_seconds(m.step.input_seconds),
            ]
            for m in measurements
        ],
    )


def build_sweep_table(title: str, measurements: Sequence[Measurement]) -> Table:
    """List the runs of a sweep file with everything that may differ between them."""
    columns = ("workload", Column("device", 2), Column("where", 1), "remedy", "workers", "batch")
    return Table(
        title,
        [*columns, "samples/s", "step", "exposed comm."],
        [
            [
                m.workload,
                describe_device(m),
                describe_place(m.place),
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


def _build_runs_table(measurements: Sequence[Measurement]) -> Table:
    columns = (
        "id",
        Column("created (UTC)", 3),
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
                m.created_minute,
                m.workload,
                m.strategy,
                m.remedy.label,
                describe_device(m),
                str(m.workers),
                str(m.batch_per_worker),
                format_per_second(m.samples_per_second),
                _format_relative_error(m),
            ]
            for m in measurements
        ],
    )


def _build_rejections_table(rejections: Sequence[Rejection]) -> Table:
    columns = (
        "id",
        Column("created (UTC)", 1),
        "workload",
        "workers",
        "batch",
        Column("strategy", 4),
        Column("remedy", 2),
        Column("where", 3),
    )
    return Table(
        "Rejected training runs",
        [*columns, "reason"],
        [
            [
                r.id,
                r.created_minute,
                r.measurement.workload,
                str(r.measurement.workers),
                str(r.measurement.batch_per_worker),
                r.measurement.strategy,
                r.measurement.remedy.label,
                describe_place(r.measurement.place),
                r.reason,
            ]
            for r in rejections
        ],
    )


def _build_details(m: Measurement, rejection_reason: str = "") -> Content:
    rows = [
        *([["rejected", rejection_reason]] if rejection_reason else []),
        ["created (UTC)", m.created_at],
        ["strategy", f"{m.strategy} on {describe_device(m)}"],
        ["remedy", m.remedy.label],
        ["where", describe_place(m.place)],
        ["workers", str(m.workers)],
        ["batch per worker", str(m.batch_per_worker)],
        ["samples/s", format_per_second(m.samples_per_second)],
        ["95% interval", format_interval(m.low, m.high)],
        ["step", format_seconds(m.step.step_seconds)],
        ["  compute", format_seconds(m.step.compute_seconds)],
        ["  exposed communication", format_seconds(m.step.exposed_communication_seconds)],
        ["  input", format_seconds(m.step.input_seconds)],
    ]
    if m.all_reduce_bytes is not None and m.all_reduce_seconds is not None:
        seconds = format_seconds(m.all_reduce_seconds)
        rows.append(["bare all-reduce", f"{format_bytes(m.all_reduce_bytes)} in {seconds}"])
    if m.loss_first is not None and m.loss_last is not None:
        rows.append(["loss", f"{m.loss_first:.4g} at the start, {m.loss_last:.4g} at the end"])
    rows.append(["windows", f"{len(m.windows)} of {format_count(m.windows[0].steps, 'step')}"])
    for name, value in m.provenance.model_dump().items():
        text = format_bytes(value) if name == "memory_bytes" else _format_value(value)
        rows.append([name.removesuffix("_bytes").replace("_", " "), text])
    return [Table(f"{m.workload}, measurement {m.id}", ["", ""], rows)]


def _format_relative_error(m: Measurement) -> str:
    return f"{100 * (m.high - m.low) / 2 / m.samples_per_second:.1f}%"


def _format_value(value: object) -> str:
    if isinstance(value, tuple | list):
        return "; ".join(
            ",".join(map(str, v)) if isinstance(v, tuple | list) else str(v) for v in value
        )
    return str(value)


def _list_history(m: Measurement) -> Iterator[HistoryPoint]:
    step = 0
    for window in m.windows:
        step += window.steps
        samples = window.steps * m.batch_per_worker * m.workers
        values = {
            "samples_per_second": samples / window.seconds,
            "step_seconds": window.seconds / window.steps,
        }
        yield HistoryPoint(step, window.seconds, values)


TRAIN = ResultKind(
    "train",
    Measurement,
    command="gpuyard bench train spoken-digits-linear",
    build_table=_build_runs_table,
    build_details=_build_details,
    csv_layout=CsvLayout(lambda m: [(m,)], _COLUMNS),
    list_history=_list_history,
    has_workload=True,
)
REJECTED = ResultKind(
    "rejected",
    Rejection,
    command="gpuyard bench sweep FILE",
    build_table=_build_rejections_table,
    build_details=lambda r: _build_details(r.measurement, r.reason),
    csv_layout=CsvLayout(lambda r: [(r.measurement,)], _COLUMNS),
    has_workload=True,
)
