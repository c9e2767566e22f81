"""`gpuyard study`: measure, predict, and price workloads in one command."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from gpuyard.cli.options import CalibrationOption, FreshOption, ResultsOption
from gpuyard.cli.output import (
    JsonOption,
    check_output_directory,
    progress_bar,
    show,
    show_if_not_stored,
)


def study(
    file: Annotated[Path, typer.Argument(help="A *.study.yaml.", metavar="FILE")],
    *,
    output_dir: Annotated[
        Path,
        typer.Option(
            metavar="DIRECTORY",
            help="Directory for report.html and study.json.",
            callback=check_output_directory,
        ),
    ] = Path("study"),
    fresh: FreshOption = False,
    calibration: CalibrationOption = None,
    results: ResultsOption = None,
    json_output: JsonOption = False,
) -> None:
    """Find out for each workload whether more GPUs would help, and write a report.

    Measures here, predicts elsewhere, and compares prices.

    Example: gpuyard study examples/spoken-digits.study.yaml --output-dir study
    """
    from gpuyard.api.study import run_study
    from gpuyard.report.answers.study.report import PAGE
    from gpuyard.report.kept import keep_report
    from gpuyard.report.terminal import print_line

    with (
        show_if_not_stored(
            json_output=json_output, document=lambda record: {"measurements": [record]}
        ),
        progress_bar() as on_progress,
    ):
        result = run_study(
            file,
            output_dir=output_dir,
            fresh=fresh,
            calibration=calibration,
            results=results,
            on_progress=on_progress,
        )
    keep_report(result.answer, sys.argv[1:])
    show(result.answer, json_output=json_output)
    print_line(f"report: {output_dir / PAGE}", stderr=json_output)
