"""Jobs' runs as tables."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from gpuyard.measure.job_runs.records import JobRun
from gpuyard.measure.kind import CourseMoment, FlatRows, ResultKind, Shown, columns_of
from gpuyard.table import Column, Table
from gpuyard.units import (
    counted,
    format_bytes,
    format_duration,
    format_interval,
    format_per_second,
    format_seconds,
)

_COLUMNS: Mapping[str, Callable[[JobRun], object]] = {
    **columns_of("id created_at kind workload"),
    "model": lambda run: run.spec.get("model", ""),
    "precision": lambda run: run.spec.get("precision") or "",
    **columns_of("strategy device gpus nodes workers batch_per_worker"),
    **columns_of("samples_per_second low high clock_samples_per_second step_seconds"),
    **columns_of("steps seconds warmup_steps warmup_seconds loss_last job handle"),
    **columns_of("host cpu_model", at="provenance"),
    "gpu_names": lambda run: "; ".join(run.provenance.gpus),
    **columns_of("torch gpuyard", at="provenance"),
    "key": lambda run: run.key,
    "doubt": lambda run: run.doubt or "",
}


def _listing(runs: Sequence[JobRun]) -> Table:
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
        "Runs of jobs",
        [*columns, "samples/s", Column("by the clock", 1), Column("steps", 5)],
        [
            [
                run.id,
                run.made,
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


def _show(run: JobRun) -> Shown:
    where = run.provenance
    rows = [
        ["ended (UTC)", run.created_at],
        ["job", " ".join(filter(None, (run.handle, run.job))) or "not said"],
        ["GPUs", f"{run.gpus} on {counted(run.nodes, 'node')}"],
        ["workers", f"{run.workers}, {run.batch_per_worker} samples each per step"],
        ["samples/s", format_per_second(run.samples_per_second)],
        ["95 % interval", format_interval(run.low, run.high)],
        ["samples/s by the clock", format_per_second(run.clock_samples_per_second)],
        ["step", f"{format_seconds(run.step_seconds)} (median)"],
        ["timed", f"{counted(run.steps, 'step')} in {format_duration(run.seconds)}"],
        ["warm-up", f"{counted(run.warmup_steps, 'step')} in {format_seconds(run.warmup_seconds)}"],
    ]
    if run.loss_last is not None:
        rows.append(["loss", f"{run.loss_last:.4g} at last"])
    rows += [
        ["host", where.host],
        ["GPU names", "; ".join(where.gpus) or "none"],
        ["CPU", f"{where.cpu_model}, {counted(where.cores, 'core')}"],
        ["memory", format_bytes(where.memory_bytes)],
        ["versions", f"gpuyard {where.gpuyard}, torch {where.torch}, Python {where.python}"],
        ["system", f"{where.os}, {where.kernel}"],
    ]
    return [Table(f"{run.workload}, run {run.id}", ["", ""], rows)]


def _course(run: JobRun) -> Iterator[CourseMoment]:
    step = 0
    for window in run.windows:
        step = window.number if window.number is not None else step + window.steps
        values = {
            "samples_per_second": window.samples_per_second,
            "step_seconds": window.step_seconds,
        }
        if window.loss is not None:
            values["loss"] = window.loss
        yield CourseMoment(step, window.seconds, values)


JOB_RUNS = ResultKind(
    "job",
    JobRun,
    made_by="gpuyard results add LOG --workload resnet50",
    listing=_listing,
    show=_show,
    flat=FlatRows(lambda run: [(run,)], _COLUMNS),
    course=_course,
    of_workloads=True,
)
