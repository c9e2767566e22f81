"""`gpuyard train`: train a workload until it has learned its training data."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from gpuyard.cli.measure.bench.running import run_bench
from gpuyard.cli.options import DryRunOption, PrecisionOption
from gpuyard.cli.output import JsonOption, check_output_file


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
    epochs: Annotated[int, typer.Option(help="Maximum passes over the training data.", min=1)] = 20,
    accuracy: Annotated[
        str,
        typer.Option(
            metavar="SHARE", help="Stop when the accuracy on the training data reaches this."
        ),
    ] = "99%",
    seed: Annotated[int, typer.Option(help="Random seed.", min=0)] = 0,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="File to keep the run in (default: one in gpuyard's home).",
            callback=check_output_file,
        ),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start over instead of resuming from the checkpoint.")
    ] = False,
    dry_run: DryRunOption = False,
    json_output: JsonOption = False,
) -> None:
    """Train a model until it has learned its training data, and report its accuracy on held-out samples.

    gpuyard writes a checkpoint after each epoch. A run that was stopped or killed resumes from the last one, and
    produces exactly the same weights as an uninterrupted run.

    Example: gpuyard train spoken-digits-linear --workers 2
    """
    from gpuyard.api.train import train as train_workload
    from gpuyard.errors import GpuyardError
    from gpuyard.units import format_share

    run = partial(
        train_workload,
        workload,
        workers=workers,
        batch=batch,
        precision=precision,
        epochs=epochs,
        accuracy=accuracy,
        seed=seed,
        checkpoint=checkpoint,
        fresh=fresh,
    )
    result = run_bench(run, dry_run=dry_run, json_output=json_output)
    if result is not None and not result.reached:
        done = len(result.epochs)
        raise GpuyardError(
            f"the accuracy is {format_share(result.epochs[-1].training_accuracy)} after {done} epochs, "
            f"below the target of {format_share(result.target_accuracy)}; continue with: --epochs {2 * done}"
        )
