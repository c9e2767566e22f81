"""`gpuyard calibrate`: fit the predictor's constants to what was measured."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.output import JsonOption, progress_bar, show, writable

if TYPE_CHECKING:
    from gpuyard.measure.calibration import CalibrationRows
    from gpuyard.predict.calibration.calibrate import Calibrated, Uncalibrated

_MEASURE = "gpuyard bench train spoken-digits-linear --workers 1,2 --batch 10,50"


def calibrate(
    *,
    results: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="STORE|EXPORT",
            help="A results store or an export as JSON lines; repeatable.",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="File to write (default: gpuyard's own).", callback=writable)
    ] = None,
    doubtful: Annotated[
        bool, typer.Option("--doubtful", help="Use runs that are marked as not credible, too.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Write it even where it makes predictions worse.")
    ] = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove the calibration: back to the defaults.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Fit and check, and write or remove nothing.")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Fit the predictor's constants to your own measurements, and check that it helps.

    Example: gpuyard calibrate --dry-run
    """
    from gpuyard import files
    from gpuyard.files import make_parent, write_text

    target = output or files.calibration_file()
    if remove:
        _remove(target, dry_run=dry_run, json_output=json_output)
        return
    from gpuyard.errors import GpuyardError
    from gpuyard.measure.calibration import calibration_document
    from gpuyard.report.answers.calibrate import calibrate_answer
    from gpuyard.report.terminal import say

    rows = _rows(results, doubtful_too=doubtful)
    done, refused = _fit(rows)
    notes = [*rows.notes, *(f"Left out: {r.hardware.label}: {r.sentence}." for r in refused)]
    if not done:
        raise GpuyardError(_too_few(rows, refused))
    kept = [one for one in done if force or not one.worse]
    document = calibration_document(kept, rows)
    answer = calibrate_answer(
        done,
        notes,
        {
            "written": str(target) if kept and not dry_run else None,
            "calibration": document.as_json() if kept else None,
            "worse": [
                calibration_document([one], rows).as_json()["hardware"][0]
                for one in done
                if one.worse
            ],
            "notes": notes,
        },
    )
    show(answer, json_output=json_output)
    if json_output:
        for note in notes:
            say(note)
    if dry_run:
        what = f"would be written to {target}" if kept else "would not be written: it is worse"
        say(f"Dry run: {what}", stderr=json_output)
        return
    if not kept:
        raise GpuyardError(
            "on configurations that the fit had not seen, predictions would be worse than with the "
            "defaults, so nothing was written; measure more, on a machine with nothing else to do, "
            "or write it anyway with --force"
        )
    write_text(target if output else make_parent(target), document.model_dump_json(indent=1) + "\n")
    taken_back = "gpuyard calibrate --remove" + (f" --output {output}" if output else "")
    say(f"Written to {target}; remove it with: {taken_back}", stderr=json_output)


def _rows(results: list[Path] | None, *, doubtful_too: bool) -> "CalibrationRows":
    from gpuyard import files
    from gpuyard.errors import GpuyardError
    from gpuyard.measure import LinkBench, Measurement, Results, read_results
    from gpuyard.measure.calibration import calibration_rows
    from gpuyard.measure.job_runs.records import JobRun

    store = files.results_file()
    if results:
        found = read_results(results)
    else:
        found = read_results([store]) if store.exists() else Results()
    measurements: list[Measurement | JobRun] = [*found.of(Measurement), *found.of(JobRun)]
    if not measurements:
        where = ", ".join(map(str, results or [store]))
        raise GpuyardError(f"no training run is in {where}; make some with: {_MEASURE}")
    return calibration_rows(measurements, found.of(LinkBench), doubtful_too=doubtful_too)


def _fit(rows: "CalibrationRows") -> "tuple[list[Calibrated], list[Uncalibrated]]":
    from gpuyard.errors import MissingRequirement
    from gpuyard.measure.progress import ProgressUpdate
    from gpuyard.predict.calibration.calibrate import calibrate as fit_and_check
    from gpuyard.predict.calibration.rows import Hardware

    try:
        import scipy.optimize  # noqa: F401
    except ImportError as missing:
        raise MissingRequirement(
            "calibrating needs scipy; get it with: pip install 'gpuyard[fit]'"
        ) from missing
    with progress_bar("fitting") as tell:

        def checked(hardware: Hardware, fold: int, folds: int) -> None:
            tell(ProgressUpdate(f"checking {hardware.label}", fold, folds))

        return fit_and_check(rows.rows, rows.links, on_fold=checked)


def _too_few(rows: "CalibrationRows", refused: "list[Uncalibrated]") -> str:
    if not refused:
        return "; ".join(rows.notes) or "no run can be used"
    listed = "; ".join(f"{one.hardware.label} has {one.sentence}" for one in refused)
    return (
        f"too little was measured to calibrate: {listed}; make more, of several batch sizes and "
        f"worker counts, with: {_MEASURE}" + "".join(f"\n{note}" for note in rows.notes)
    )


def _remove(target: Path, *, dry_run: bool, json_output: bool) -> None:
    from gpuyard.errors import GpuyardError
    from gpuyard.report.answer import Answer, Sentence

    there = target.exists()
    if there and not dry_run:
        try:
            target.unlink()
        except OSError as error:
            raise GpuyardError(f"{target} can't be removed: {error.strerror}") from error
    if there:
        said = f"{'Would remove' if dry_run else 'Removed'} {target}"
    else:
        said = f"There is no calibration at {target}"
    removed = {"removed": str(target) if there and not dry_run else None}
    show(Answer([Sentence(said)], removed), json_output=json_output)
