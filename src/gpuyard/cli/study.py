"""`gpuyard study`: measure, predict, and price workloads in one command."""

from pathlib import Path
from typing import Annotated

import typer

from gpuyard.api.inputs import load_calibration, load_results
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
    from gpuyard import files
    from gpuyard.catalog.specfiles import read_study
    from gpuyard.measure import ResultsStore
    from gpuyard.report.answers.study.report import refuse_foreign_files, study_answer, write_report
    from gpuyard.report.terminal import print_line
    from gpuyard.study import run_study

    spec = read_study(file)
    refuse_foreign_files(output_dir)
    constants = load_calibration(calibration)
    store = ResultsStore(files.results_file())
    stored = load_results(results)
    with (
        show_if_not_stored(
            json_output=json_output, document=lambda record: {"measurements": [record]}
        ),
        progress_bar() as on_progress,
    ):
        result = run_study(
            spec,
            file.parent,
            store,
            on_progress=on_progress,
            fresh=fresh,
            calibration=constants,
            stored=stored,
        )
    report = write_report(result, output_dir)
    show(study_answer(result), json_output=json_output)
    print_line(f"report: {report}", stderr=json_output)
