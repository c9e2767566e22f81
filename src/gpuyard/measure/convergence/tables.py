"""Tables of training runs to a target accuracy."""

from collections.abc import Sequence

from gpuyard.measure.convergence.records import ConvergenceRun
from gpuyard.measure.kind import Content, ResultKind
from gpuyard.measure.record import format_precision_suffix
from gpuyard.table import Column, Table
from gpuyard.units import format_count


def _build_runs_table(runs: Sequence[ConvergenceRun]) -> Table:
    columns = ("id", Column("created (UTC)", 1), "workload", "workers", "batch", "epochs", "loss")
    return Table(
        "Training to an accuracy",
        [*columns, "training data", "held out", "reached"],
        [
            [
                run.id,
                run.created_minute,
                run.workload,
                str(run.workers),
                str(run.batch_per_worker),
                str(run.last.epoch),
                f"{run.last.loss:.4f}",
                f"{100 * run.last.training_accuracy:.2f}%",
                f"{100 * run.last.held_out_accuracy:.2f}%",
                "yes" if run.reached else "no",
            ]
            for run in runs
        ],
    )


def _build_details(run: ConvergenceRun) -> Content:
    last = run.last
    return [
        Table(
            f"{run.workload}{format_precision_suffix(run.precision)}: {format_count(run.workers, 'worker')}, {run.batch_per_worker} samples each per update",
            ["", ""],
            [
                ["epochs", str(last.epoch)],
                ["loss", f"{last.loss:.4f}"],
                ["accuracy on the training data", f"{100 * last.training_accuracy:.2f}%"],
                ["accuracy on held-out data", f"{100 * last.held_out_accuracy:.2f}%"],
                ["training time", f"{sum(epoch.seconds for epoch in run.epochs):.1f} s"],
                ["parameter checksum", last.parameter_checksum],
                ["checkpoint", run.checkpoint],
            ],
        )
    ]


CONVERGENCE = ResultKind(
    "convergence",
    ConvergenceRun,
    command="gpuyard train spoken-digits-linear",
    build_table=_build_runs_table,
    build_details=_build_details,
    has_workload=True,
)
