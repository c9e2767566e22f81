"""Fit the predictor's constants to measurements, check that this helps, and store the calibration."""

from collections.abc import Sequence
from pathlib import Path

from gpuyard import files
from gpuyard.api.result import Result, Row, wrap
from gpuyard.errors import GpuyardError, MissingRequirement
from gpuyard.files import create_parent, results_file, write_text
from gpuyard.measure.calibration import (
    CalibrationRows,
    build_calibration,
    build_calibration_rows,
)
from gpuyard.measure.job_runs.records import JobRun
from gpuyard.measure.links.records import LinkBench
from gpuyard.measure.progress import ProgressCallback, ProgressUpdate
from gpuyard.measure.reading import Results, read_results
from gpuyard.measure.training.records import Measurement
from gpuyard.predictor.calibration.calibrate import Calibrated, Uncalibrated
from gpuyard.predictor.calibration.calibrate import calibrate as fit_and_check
from gpuyard.predictor.calibration.rows import Hardware
from gpuyard.report.answer import Answer, Sentence
from gpuyard.report.answers.calibrate import calibrate_answer

_MEASURE = "gpuyard bench train spoken-digits-linear --workers 1,2 --batch 10,50"


class CalibrationIsWorse(GpuyardError):
    """The fit would make predictions worse, so nothing was written; `result` shows the fit."""

    def __init__(self, result: Result[Row]) -> None:
        self.result = result
        super().__init__(
            "nothing was written, because predictions of configurations outside the fit would be worse "
            "than with the defaults; measure more while nothing else runs, or write it anyway with --force"
        )


def calibrate(
    results: "str | Path | Sequence[str | Path] | None" = None,
    *,
    output: str | Path | None = None,
    doubtful: bool = False,
    force: bool = False,
    dry_run: bool = False,
    on_progress: ProgressCallback | None = None,
) -> Result[Row]:
    """Fit the predictor's constants to your own measurements, and check that it helps; each row is a kind of hardware.

    `results` are results stores, or exports as JSON lines. Later predictions use the calibration, unless `output` names
    another file for it. A calibration that makes predictions worse is only written with `force`.
    """
    rows = _read_rows(results, include_doubtful=doubtful)
    fits, refused = _fit(rows, on_progress)
    notes = [*rows.notes, *(f"Left out: {r.hardware.label}: {r.reason}." for r in refused)]
    if not fits:
        raise GpuyardError(_describe_too_few(rows, refused))
    kept = [fit for fit in fits if force or not fit.is_worse]
    calibration = build_calibration(kept, rows)
    target = files.calibration_file() if output is None else Path(output)
    written = bool(kept) and not dry_run
    if written:
        content = calibration.model_dump_json(indent=1) + "\n"
        write_text(create_parent(target) if output is None else target, content)
    calibrated = calibration.as_json() if kept else None
    document = {
        "written": str(target) if written else None,
        "calibration": calibrated,
        "worse": [
            build_calibration([fit], rows).as_json()["hardware"][0] for fit in fits if fit.is_worse
        ],
        "notes": list(notes),
    }
    if written:
        undo = "gpuyard calibrate --remove" + ("" if output is None else f" --output {output}")
        notes.append(f"Written to {target}; remove it with: {undo}")
    elif dry_run:
        outcome = f"would be written to {target}" if kept else "would not be written: it is worse"
        notes.append(f"Dry run: {outcome}")
    hardware = wrap(calibrated["hardware"]) if calibrated else []
    result: Result[Row] = Result(calibrate_answer(fits, notes, document), hardware)
    if not (kept or dry_run):
        raise CalibrationIsWorse(result)
    return result


def remove_calibration(output: str | Path | None = None, *, dry_run: bool = False) -> Result[Row]:
    """Remove the calibration, or the one in the file `output`, so that predictions use the defaults again."""
    target = files.calibration_file() if output is None else Path(output)
    exists = target.exists()
    if exists and not dry_run:
        try:
            target.unlink()
        except OSError as error:
            raise GpuyardError(f"{target} cannot be removed: {error.strerror}") from error
    if exists:
        outcome = f"{'Would remove' if dry_run else 'Removed'} {target}"
    else:
        outcome = f"There is no calibration at {target}"
    removed = str(target) if exists and not dry_run else None
    return Result(Answer([Sentence(outcome)], {"removed": removed}))


def _read_rows(
    results: "str | Path | Sequence[str | Path] | None", *, include_doubtful: bool
) -> CalibrationRows:
    store = results_file()
    if isinstance(results, str | Path):
        results = [results]
    if results:
        read = read_results([Path(each) for each in results])
    else:
        read = read_results([store]) if store.exists() else Results()
    runs: list[Measurement | JobRun] = [*read.select(Measurement), *read.select(JobRun)]
    if not runs:
        names = ", ".join(map(str, results or [store]))
        raise GpuyardError(f"no training runs found in {names}; measure some with: {_MEASURE}")
    benches = read.select(LinkBench)
    return build_calibration_rows(runs, benches, include_doubtful=include_doubtful)


def _fit(
    rows: CalibrationRows, on_progress: ProgressCallback | None
) -> tuple[list[Calibrated], list[Uncalibrated]]:
    try:
        import scipy.optimize  # noqa: F401
    except ImportError as missing:
        raise MissingRequirement(
            "calibrating needs scipy; get it with: pip install 'gpuyard[fit]'"
        ) from missing

    def report_fold(hardware: Hardware, fold: int, folds: int) -> None:
        if on_progress is not None:
            on_progress(ProgressUpdate(f"checking {hardware.label}", fold, folds))

    return fit_and_check(rows.rows, rows.links, on_fold=report_fold)


def _describe_too_few(rows: CalibrationRows, refused: Sequence[Uncalibrated]) -> str:
    if not refused:
        return "; ".join(rows.notes) or "no run can be used"
    reasons = "; ".join(f"{r.hardware.label} has {r.reason}" for r in refused)
    return (
        f"too little was measured to calibrate: {reasons}; measure more batch sizes and worker counts "
        f"with: {_MEASURE}" + "".join(f"\n{note}" for note in rows.notes)
    )
