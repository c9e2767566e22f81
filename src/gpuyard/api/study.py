"""Measure, predict, and price the workloads of a study, and write its report."""

from pathlib import Path

from gpuyard.api.inputs import load_calibration, load_results
from gpuyard.api.result import Result, Row, wrap
from gpuyard.catalog.specfiles import read_study
from gpuyard.files import results_file
from gpuyard.measure.progress import ProgressCallback
from gpuyard.measure.store import ResultsStore
from gpuyard.report.answers.study.report import refuse_foreign_files, study_answer, write_report
from gpuyard.study import run_study as measure_and_judge


def run_study(
    file: str | Path,
    *,
    output_dir: str | Path | None = None,
    fresh: bool = False,
    calibration: str | None = None,
    results: str | None = None,
    on_progress: ProgressCallback | None = None,
) -> Result[Row]:
    """Find out for each workload whether more GPUs would help; with `output_dir`, write report.html and study.json."""
    file, output_dir = Path(file), None if output_dir is None else Path(output_dir)
    spec = read_study(file)
    if output_dir is not None:
        refuse_foreign_files(output_dir)  # before anything is measured
    constants, stored = load_calibration(calibration), load_results(results)
    outcome = measure_and_judge(
        spec,
        file.parent,
        ResultsStore(results_file()),
        on_progress=on_progress or (lambda _progress: None),
        fresh=fresh,
        calibration=constants,
        stored=stored,
    )
    if output_dir is not None:
        write_report(outcome, output_dir)
    answer = study_answer(outcome)
    return Result(answer, wrap(answer.document["workloads"]))
