"""`gpuyard train`: train a workload until it knows its training data."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.options import DryRunOption, JsonOption, console, print_json, print_table

if TYPE_CHECKING:
    from gpuyard.measure.convergence import FitPlan, FitResult


def train(
    workload: Annotated[
        str, typer.Argument(help="A *.workload.yaml file, or the name of a catalog model.")
    ],
    *,
    workers: Annotated[int, typer.Option(help="Number of workers.", min=1)] = 1,
    batch: Annotated[
        int | None,
        typer.Option(help="Batch size per worker (default: 50 over all workers).", min=1),
    ] = None,
    epochs: Annotated[int, typer.Option(help="Most passes over the training data.", min=1)] = 20,
    accuracy: Annotated[
        str, typer.Option(help="Stop when the accuracy on the training data is above this.")
    ] = "99 %",
    seed: Annotated[int, typer.Option(help="Random seed.", min=0)] = 0,
    checkpoint: Annotated[
        Path | None, typer.Option(help="File to keep the run in (default: one in gpuyard's home).")
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start over instead of resuming from the checkpoint.")
    ] = False,
    dry_run: DryRunOption = False,
    json_output: JsonOption = False,
) -> None:
    """Train until the model knows its training data, and say what it makes of clips that were held out.

    After each epoch a checkpoint is written. A run that was stopped or killed goes on from the last one, and
    ends with the same weights, bit for bit, as if nothing had happened.

    Example: gpuyard train spoken-digits-linear --workers 2
    """
    from gpuyard.catalog.specfiles import read_workload
    from gpuyard.errors import GpuyardError
    from gpuyard.measure.convergence import plan_fit
    from gpuyard.units import format_share, parse_share

    plan = plan_fit(
        read_workload(workload),
        workers=workers,
        batch_per_worker=batch,
        epochs=epochs,
        target_accuracy=parse_share(accuracy),
        seed=seed,
        checkpoint=checkpoint,
    )
    if dry_run:
        _show_plan(plan, json_output=json_output)
        return
    result = _run(plan, fresh=fresh)
    if json_output:
        print_json(result.as_json())
    else:
        _show(result)
    if not result.reached:
        raise GpuyardError(
            f"{format_share(result.last.training_accuracy)} of the training data after "
            f"{len(result.epochs)} epochs, {format_share(plan.target_accuracy)} was wanted; "
            f"go on with: --epochs {2 * len(result.epochs)}"
        )


def _show_plan(plan: "FitPlan", *, json_output: bool) -> None:
    described = plan.describe()
    if json_output:
        print_json(described)
        return
    rows = [[name.replace("_", " "), str(value)] for name, value in described.items()]
    print_table(f"{plan.workload.name}: would be trained", ["", ""], rows)


def _run(plan: "FitPlan", *, fresh: bool) -> "FitResult":
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from gpuyard.measure.convergence import EpochDone, run_fit
    from gpuyard.measure.convergence.job import FitProgress

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        bar = progress.add_task("starting", total=plan.epochs)

        def show(event: FitProgress | EpochDone) -> None:
            if isinstance(event, EpochDone):
                progress.update(bar, completed=event.epoch)
                again = " (from the checkpoint)" if event.restored else ""
                progress.console.print(
                    f"epoch {event.epoch}: loss {event.loss:.4f}, training data "
                    f"{100 * event.training_accuracy:.2f} %, held out "
                    f"{100 * event.held_out_accuracy:.2f} %{again}",
                    highlight=False,
                )
            else:
                completed = event.epoch - 1 + event.fraction
                progress.update(bar, completed=completed, description=f"epoch {event.epoch}")

        return run_fit(plan, fresh=fresh, on_event=show)


def _show(result: "FitResult") -> None:
    last = result.last
    print_table(
        f"{result.workload}: {result.workers} worker(s), {result.batch_per_worker} samples each an update",
        ["", ""],
        [
            ["epochs", str(last.epoch)],
            ["loss", f"{last.loss:.4f}"],
            ["accuracy on the training data", f"{100 * last.training_accuracy:.2f} %"],
            ["accuracy on what was held out", f"{100 * last.held_out_accuracy:.2f} %"],
            ["seconds of training", f"{sum(epoch.seconds for epoch in result.epochs):.1f}"],
            ["parameters (checksum)", last.parameter_checksum],
            ["checkpoint", result.checkpoint],
        ],
    )
