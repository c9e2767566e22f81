"""Training to an accuracy as tables."""

from collections.abc import Sequence

from gpuyard.measure.convergence.records import ConvergenceRun
from gpuyard.measure.kind import ResultKind, Shown
from gpuyard.measure.record import in_precision
from gpuyard.table import Column, Table
from gpuyard.units import counted


def _listing(runs: Sequence[ConvergenceRun]) -> Table:
    columns = ("id", Column("made (UTC)", 1), "workload", "workers", "batch", "epochs", "loss")
    return Table(
        "Training to an accuracy",
        [*columns, "training data", "held out", "reached"],
        [
            [
                run.id,
                run.made,
                run.workload,
                str(run.workers),
                str(run.batch_per_worker),
                str(run.last.epoch),
                f"{run.last.loss:.4f}",
                f"{100 * run.last.training_accuracy:.2f} %",
                f"{100 * run.last.held_out_accuracy:.2f} %",
                "yes" if run.reached else "no",
            ]
            for run in runs
        ],
    )


def _show(run: ConvergenceRun) -> Shown:
    last = run.last
    return [
        Table(
            f"{run.workload}{in_precision(run.precision)}: {counted(run.workers, 'worker')}, {run.batch_per_worker} samples each per update",
            ["", ""],
            [
                ["epochs", str(last.epoch)],
                ["loss", f"{last.loss:.4f}"],
                ["accuracy on the training data", f"{100 * last.training_accuracy:.2f} %"],
                ["accuracy on held-out data", f"{100 * last.held_out_accuracy:.2f} %"],
                ["seconds of training", f"{sum(epoch.seconds for epoch in run.epochs):.1f}"],
                ["parameters (checksum)", last.parameter_checksum],
                ["checkpoint", run.checkpoint],
            ],
        )
    ]


CONVERGENCE = ResultKind(
    "convergence",
    ConvergenceRun,
    made_by="gpuyard train spoken-digits-linear",
    listing=_listing,
    show=_show,
    of_workloads=True,
)
