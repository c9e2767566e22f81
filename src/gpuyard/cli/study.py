"""`gpuyard study`: the whole row in one command."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.options import (
    CalibrationOption,
    FreshOption,
    ResultsOption,
    chosen_calibration,
    chosen_results,
)
from gpuyard.cli.output import (
    JsonOption,
    progress_bar,
    show,
    shown_if_not_stored,
    writable_directory,
)

if TYPE_CHECKING:
    from gpuyard.measure import ResultsStore
    from gpuyard.measure.stored_figures import StoredRuns
    from gpuyard.predict import Calibration
    from gpuyard.specs.study import Study
    from gpuyard.study import StudyResult


def study(
    file: Annotated[Path, typer.Argument(help="A *.study.yaml.", metavar="FILE")],
    *,
    output: Annotated[
        Path,
        typer.Option(
            metavar="DIRECTORY", help="For report.html and study.json.", callback=writable_directory
        ),
    ] = Path("study"),
    fresh: FreshOption = False,
    calibration: CalibrationOption = None,
    results: ResultsOption = None,
    json_output: JsonOption = False,
) -> None:
    """Say for each workload whether more GPUs would help, and write a report.

    Measures here, predicts elsewhere, and compares prices.

    Example: gpuyard study examples/spoken-digits.study.yaml --output study
    """
    from gpuyard import files
    from gpuyard.catalog.specfiles import read_study
    from gpuyard.measure import ResultsStore
    from gpuyard.report.answers.study.report import refuse_foreign, study_answer, write_report
    from gpuyard.report.terminal import say

    spec = read_study(file)
    refuse_foreign(output)
    constants = chosen_calibration(calibration)
    store = ResultsStore(files.results_file())
    stored = chosen_results(results)
    with shown_if_not_stored(json_output=json_output, document=lambda one: {"measurements": [one]}):
        result = _run(spec, file.parent, store, fresh=fresh, calibration=constants, stored=stored)
    report = write_report(result, output)
    show(study_answer(result), json_output=json_output)
    say(f"report: {report}", stderr=json_output)


def _run(
    spec: "Study",
    directory: Path,
    store: "ResultsStore",
    *,
    fresh: bool,
    calibration: "Calibration | None",
    stored: "StoredRuns | None",
) -> "StudyResult":
    from gpuyard.study import run_study

    with progress_bar() as tell:
        return run_study(
            spec,
            directory,
            store,
            tell=tell,
            fresh=fresh,
            calibration=calibration,
            stored=stored,
        )
