"""Tables of job runs."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from gpuyard.measure.job_runs.records import JobRun
from gpuyard.measure.kind import Content, CsvLayout, HistoryPoint, ResultKind, build_columns
from gpuyard.table import Column, Table
from gpuyard.units import (
    format_bytes,
    format_count,
    format_duration,
    format_interval,
    format_per_second,
    format_seconds,
)

_COLUMNS: Mapping[str, Callable[[JobRun], object]] = {
    **build_columns("id created_at kind workload"),
    "model": lambda run: run.spec.get("model", ""),
    "precision": lambda run: run.spec.get("precision") or "",
    **build_columns("strategy device gpus nodes workers batch_per_worker"),
    **build_columns("samples_per_second low high clock_samples_per_second step_seconds"),
    **build_columns("steps seconds warmup_steps warmup_seconds loss_last job handle"),
    **build_columns("checkpoint_seconds startup_seconds"),
    **build_columns("host cpu_model", parent="provenance"),
    "gpu_names": lambda run: "; ".join(run.provenance.gpus),
    **build_columns("torch gpuyard", parent="provenance"),
    "key": lambda run: run.key,
    "doubt": lambda run: run.doubt or "",
}


def _build_runs_table(runs: Sequence[JobRun]) -> Table:
    columns = (
        "id",
        Column("ended (UTC)", 3),
        Column("job", 4),
        "workload",
        "GPUs",
        Column("nodes", 2),
        "batch",
    )
    return Table(
        "Job runs",
        [*columns, "samples/s", Column("wall-clock", 1), Column("steps", 5)],
        [
            [
                run.id,
                run.created_minute,
                run.handle or run.job[:8],
                run.workload,
                str(run.gpus),
                str(run.nodes),
                str(run.batch_per_worker),
                format_per_second(run.samples_per_second),
                format_per_second(run.clock_samples_per_second),
                f"{run.steps:,}",
            ]
            for run in runs
        ],
    )


def _build_details(run: JobRun) -> Content:
    testbed = run.provenance
    rows = [
        ["ended (UTC)", run.created_at],
        ["job", " ".join(filter(None, (run.handle, run.job))) or "unknown"],
        ["GPUs", f"{run.gpus} on {format_count(run.nodes, 'node')}"],
        ["workers", f"{run.workers}, {run.batch_per_worker} samples each per step"],
        ["samples/s", format_per_second(run.samples_per_second)],
        ["95% interval", format_interval(run.low, run.high)],
        ["samples/s, wall-clock", format_per_second(run.clock_samples_per_second)],
        ["step", f"{format_seconds(run.step_seconds)} (median)"],
        ["timed", f"{format_count(run.steps, 'step')} in {format_duration(run.seconds)}"],
        [
            "warm-up",
            f"{format_count(run.warmup_steps, 'step')} in {format_seconds(run.warmup_seconds)}",
        ],
    ]
    if run.loss_last is not None:
        rows.append(["final loss", f"{run.loss_last:.4g}"])
    if run.checkpoint_seconds is not None:
        rows.append(["checkpoint", format_seconds(run.checkpoint_seconds)])
    if run.startup_seconds is not None:
        rows.append(["start to first step", format_seconds(run.startup_seconds)])
    rows += [
        ["host", testbed.host],
        ["GPU names", "; ".join(testbed.gpus) or "none"],
        ["CPU", f"{testbed.cpu_model}, {format_count(testbed.cores, 'core')}"],
        ["memory", format_bytes(testbed.memory_bytes)],
        ["versions", f"gpuyard {testbed.gpuyard}, torch {testbed.torch}, Python {testbed.python}"],
        ["system", f"{testbed.os}, {testbed.kernel}"],
    ]
    return [Table(f"{run.workload}, run {run.id}", ["", ""], rows)]


def _list_history(run: JobRun) -> Iterator[HistoryPoint]:
    step = 0
    for window in run.windows:
        step = window.number if window.number is not None else step + window.steps
        values = {
            "samples_per_second": window.samples_per_second,
            "step_seconds": window.step_seconds,
        }
        if window.loss is not None:
            values["loss"] = window.loss
        yield HistoryPoint(step, window.seconds, values)


JOB_RUNS = ResultKind(
    "job",
    JobRun,
    command="gpuyard results add LOG --workload resnet50",
    build_table=_build_runs_table,
    build_details=_build_details,
    csv_layout=CsvLayout(lambda run: [(run,)], _COLUMNS),
    list_history=_list_history,
    has_workload=True,
)
