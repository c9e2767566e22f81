"""`gpuyard calibrate`: fit the predictor's constants to stored measurements."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.output import JsonOption, check_output_file, progress_bar, show

if TYPE_CHECKING:
    from gpuyard.measure.calibration import CalibrationRows
    from gpuyard.predictor.calibration.calibrate import Calibrated, Uncalibrated

_MEASURE = "gpuyard bench train spoken-digits-linear --workers 1,2 --batch 10,50"


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
    from gpuyard import files
    from gpuyard.files import create_parent, write_text

    target = output or files.calibration_file()
    if remove:
        _remove(target, dry_run=dry_run, json_output=json_output)
        return
    from gpuyard.errors import GpuyardError
    from gpuyard.measure.calibration import build_calibration
    from gpuyard.report.answers.calibrate import calibrate_answer
    from gpuyard.report.terminal import print_line

    rows = _read_rows(results, include_doubtful=doubtful)
    fits, refused = _fit(rows)
    notes = [*rows.notes, *(f"Left out: {r.hardware.label}: {r.reason}." for r in refused)]
    if not fits:
        raise GpuyardError(_describe_too_few(rows, refused))
    kept = [fit for fit in fits if force or not fit.is_worse]
    document = build_calibration(kept, rows)
    answer = calibrate_answer(
        fits,
        notes,
        {
            "written": str(target) if kept and not dry_run else None,
            "calibration": document.as_json() if kept else None,
            "worse": [
                build_calibration([fit], rows).as_json()["hardware"][0]
                for fit in fits
                if fit.is_worse
            ],
            "notes": notes,
        },
    )
    show(answer, json_output=json_output)
    if json_output:
        for note in notes:
            print_line(note)
    if dry_run:
        outcome = f"would be written to {target}" if kept else "would not be written: it is worse"
        print_line(f"Dry run: {outcome}", stderr=json_output)
        return
    if not kept:
        raise GpuyardError(
            "nothing was written, because predictions of configurations outside the fit would be worse "
            "than with the defaults; measure more while nothing else runs, or write it anyway with --force"
        )
    write_text(
        target if output else create_parent(target), document.model_dump_json(indent=1) + "\n"
    )
    remove_command = "gpuyard calibrate --remove" + (f" --output {output}" if output else "")
    print_line(f"Written to {target}; remove it with: {remove_command}", stderr=json_output)


def _read_rows(paths: list[Path] | None, *, include_doubtful: bool) -> "CalibrationRows":
    from gpuyard import files
    from gpuyard.errors import GpuyardError
    from gpuyard.measure import LinkBench, Measurement, Results, read_results
    from gpuyard.measure.calibration import build_calibration_rows
    from gpuyard.measure.job_runs.records import JobRun

    store = files.results_file()
    if paths:
        results = read_results(paths)
    else:
        results = read_results([store]) if store.exists() else Results()
    runs: list[Measurement | JobRun] = [*results.select(Measurement), *results.select(JobRun)]
    if not runs:
        names = ", ".join(map(str, paths or [store]))
        raise GpuyardError(f"no training runs found in {names}; measure some with: {_MEASURE}")
    benches = results.select(LinkBench)
    return build_calibration_rows(runs, benches, include_doubtful=include_doubtful)


def _fit(rows: "CalibrationRows") -> "tuple[list[Calibrated], list[Uncalibrated]]":
    from gpuyard.errors import MissingRequirement
    from gpuyard.measure.progress import ProgressUpdate
    from gpuyard.predictor.calibration.calibrate import calibrate as fit_and_check
    from gpuyard.predictor.calibration.rows import Hardware

    try:
        import scipy.optimize  # noqa: F401
    except ImportError as missing:
        raise MissingRequirement(
            "calibrating needs scipy; get it with: pip install 'gpuyard[fit]'"
        ) from missing
    with progress_bar("fitting") as on_progress:

        def report_fold(hardware: Hardware, fold: int, folds: int) -> None:
            on_progress(ProgressUpdate(f"checking {hardware.label}", fold, folds))

        return fit_and_check(rows.rows, rows.links, on_fold=report_fold)


def _describe_too_few(rows: "CalibrationRows", refused: "list[Uncalibrated]") -> str:
    if not refused:
        return "; ".join(rows.notes) or "no run can be used"
    reasons = "; ".join(f"{r.hardware.label} has {r.reason}" for r in refused)
    return (
        f"too little was measured to calibrate: {reasons}; measure more batch sizes and worker counts "
        f"with: {_MEASURE}" + "".join(f"\n{note}" for note in rows.notes)
    )


def _remove(target: Path, *, dry_run: bool, json_output: bool) -> None:
    from gpuyard.errors import GpuyardError
    from gpuyard.report.answer import Answer, Sentence

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
    removed = {"removed": str(target) if exists and not dry_run else None}
    show(Answer([Sentence(outcome)], removed), json_output=json_output)
