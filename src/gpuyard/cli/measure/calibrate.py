"""`gpuyard calibrate`: fit the predictor's constants to stored measurements."""

from pathlib import Path
from typing import Annotated

import typer

from gpuyard.cli.output import JsonOption, check_output_file, progress_bar, show


def calibrate(
    *,
    results: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="A results store or an export as JSON lines; repeatable.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="File to write (default: gpuyard's own).", callback=check_output_file),
    ] = None,
    doubtful: Annotated[
        bool, typer.Option("--doubtful", help="Also use runs that are marked as doubtful.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Write it even if it makes predictions worse.")
    ] = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove the calibration and return to the defaults.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Fit and check, but do not write or remove anything.")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Fit the predictor's constants to your own measurements, and check that it helps.

    Example: gpuyard calibrate --dry-run
    """
    from gpuyard.api import calibration

    if remove:
        removed = calibration.remove_calibration(output, dry_run=dry_run)
        show(removed.answer, json_output=json_output)
        return
    try:
        with progress_bar("fitting") as on_progress:
            result = calibration.calibrate(
                results,
                output=output,
                doubtful=doubtful,
                force=force,
                dry_run=dry_run,
                on_progress=on_progress,
            )
    except calibration.CalibrationIsWorse as worse:
        show(worse.result.answer, json_output=json_output)
        raise
    show(result.answer, json_output=json_output)
