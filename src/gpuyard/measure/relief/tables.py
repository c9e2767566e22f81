"""Benches of remedies as tables."""

from collections.abc import Sequence

from gpuyard.measure.kind import ResultKind, Shown
from gpuyard.measure.record import in_precision
from gpuyard.measure.relief.records import ReliefResult, Relieved
from gpuyard.measure.training.records import place_words
from gpuyard.table import Column, Table
from gpuyard.units import format_per_second, format_share


def _listing(reliefs: Sequence[ReliefResult]) -> Table:
    columns = ("id", Column("made (UTC)", 1), "workload", "workers", "batch", Column("where", 2))
    return Table(
        "Benches of remedies",
        [*columns, "best", "× plain DDP"],
        [
            [
                relief.id,
                relief.made,
                relief.workload,
                str(relief.workers),
                str(relief.batch_per_worker),
                place_words(relief.place),
                relief.best.remedy.label,
                f"{relief.speed_up(relief.best):.2f}",
            ]
            for relief in reliefs
        ],
    )


def _show(result: ReliefResult) -> Shown:
    """Each remedy with what it brings, what was predicted, and what was learned."""
    table = Table(
        f"{result.workload}{in_precision(result.precision)}: {result.workers} workers, batch {result.batch_per_worker}, "
        f"{result.runs[0].samples:,} samples each",
        ["remedy", "samples/s", "speed-up", "predicted", "final loss", "learned", "loss is"],
        [
            _row(result, run, predicted)
            for run, predicted in zip(result.runs, result.foreseen_of_each, strict=True)
        ],
    )
    first, best = result.plain.loss_first, result.best
    return [
        table,
        *([] if first is None else [f"Loss before training: {first:.4f}."]),
        "No remedy is faster at equal loss."
        if best.remedy.plain
        else f"Best at equal loss: {best.remedy.label}, {result.speed_up(best):.2f} × plain DDP.",
    ]


def _row(result: ReliefResult, run: Relieved, predicted: float | None) -> list[str]:
    learned = result.learnt(run)
    return [
        run.remedy.label,
        format_per_second(run.samples_per_second),
        f"{result.speed_up(run):.2f}",
        "" if predicted is None else f"{predicted:.2f}",
        "not a number" if run.loss is None else f"{run.loss:.4f}",
        "" if learned is None else format_share(learned),
        "" if run.remedy.plain else "equal" if result.equal_loss(run) else "worse",
    ]


RELIEF = ResultKind(
    "relief",
    ReliefResult,
    made_by="gpuyard bench relief spoken-digits-linear",
    listing=_listing,
    show=_show,
    of_workloads=True,
)
