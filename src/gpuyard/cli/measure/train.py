"""`gpuyard train`: train a workload until it has learned its training data."""

from pathlib import Path
from typing import Annotated

import typer

from gpuyard.cli.measure.bench.running import run_bench
from gpuyard.cli.options import DryRunOption, PrecisionOption, measured_in_asked
from gpuyard.cli.output import JsonOption, writable


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
    precision: PrecisionOption = None,
    epochs: Annotated[int, typer.Option(help="Most passes over the training data.", min=1)] = 20,
    accuracy: Annotated[
        str, typer.Option(help="Stop when the accuracy on the training data reaches this.")
    ] = "99 %",
    seed: Annotated[int, typer.Option(help="Random seed.", min=0)] = 0,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="File to keep the run in (default: one in gpuyard's home).", callback=writable
        ),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start over instead of resuming from the checkpoint.")
    ] = False,
    dry_run: DryRunOption = False,
    json_output: JsonOption = False,
) -> None:
    """Train a model until it has learned its training data, and report its accuracy on held-out samples.

    After each epoch a checkpoint is written. A run that was stopped or killed resumes from the last one, and
    ends with the same weights, bit for bit, as if nothing had happened.

    Example: gpuyard train spoken-digits-linear --workers 2
    """
    from gpuyard.catalog.specfiles import read_workload
    from gpuyard.errors import GpuyardError
    from gpuyard.measure.convergence.plan import plan_convergence
    from gpuyard.measure.convergence.run import run_convergence
    from gpuyard.units import format_share, parse_share

    plan = plan_convergence(
        measured_in_asked(read_workload(workload), precision),
        workers=workers,
        batch_per_worker=batch,
        epochs=epochs,
        target_accuracy=parse_share(accuracy),
        seed=seed,
        checkpoint=checkpoint,
        fresh=fresh,
    )
    run = run_bench(plan, run_convergence, dry_run=dry_run, json_output=json_output)
    if run is not None and not run.reached:
        raise GpuyardError(
            f"{format_share(run.last.training_accuracy)} of the training data after "
            f"{len(run.epochs)} epochs, {format_share(plan.target_accuracy)} was wanted; "
            f"go on with: --epochs {2 * len(run.epochs)}"
        )
