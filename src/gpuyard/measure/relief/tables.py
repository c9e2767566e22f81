"""Tables of remedy benchmarks."""

from collections.abc import Sequence

from gpuyard.measure.kind import Content, ResultKind
from gpuyard.measure.record import format_precision_suffix
from gpuyard.measure.relief.records import ReliefResult, RemedyRun
from gpuyard.measure.training.records import describe_place
from gpuyard.table import Column, Table
from gpuyard.units import format_per_second, format_share


def _build_results_table(results: Sequence[ReliefResult]) -> Table:
    columns = ("id", Column("created (UTC)", 1), "workload", "workers", "batch", Column("where", 2))
    return Table(
        "Remedy benchmarks",
        [*columns, "best", "× plain DDP"],
        [
            [
                result.id,
                result.created_minute,
                result.workload,
                str(result.workers),
                str(result.batch_per_worker),
                describe_place(result.place),
                result.best.remedy.label,
                f"{result.speed_up(result.best):.2f}",
            ]
            for result in results
        ],
    )


def _build_details(result: ReliefResult) -> Content:
    """List each remedy with its speed-up, its predicted speed-up, and its loss."""
    table = Table(
        f"{result.workload}{format_precision_suffix(result.precision)}: {result.workers} workers, batch {result.batch_per_worker}, "
        f"{result.runs[0].samples:,} samples each",
        ["remedy", "samples/s", "speed-up", "predicted", "final loss", "learned", "loss is"],
        [
            _format_row(result, run, predicted)
            for run, predicted in zip(result.runs, result.predicted_speed_ups, strict=True)
        ],
    )
    first, best = result.plain.loss_first, result.best
    return [
        table,
        *([] if first is None else [f"Loss before training: {first:.4f}."]),
        "No remedy is faster at equal loss."
        if best.remedy.is_default
        else f"Best at equal loss: {best.remedy.label}, {result.speed_up(best):.2f} × plain DDP.",
    ]


def _format_row(result: ReliefResult, run: RemedyRun, predicted: float | None) -> list[str]:
    learned = result.learned_share(run)
    return [
        run.remedy.label,
        format_per_second(run.samples_per_second),
        f"{result.speed_up(run):.2f}",
        "" if predicted is None else f"{predicted:.2f}",
        "not a number" if run.loss is None else f"{run.loss:.4f}",
        "" if learned is None else format_share(learned),
        "" if run.remedy.is_default else "equal" if result.equal_loss(run) else "worse",
    ]


RELIEF = ResultKind(
    "relief",
    ReliefResult,
    command="gpuyard bench relief spoken-digits-linear",
    build_table=_build_results_table,
    build_details=_build_details,
    has_workload=True,
)
