"""`gpuyard calibrate`: fit the predictor's constants to what was measured."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.options import JsonOption, console, print_json

if TYPE_CHECKING:
    from gpuyard.measure import CalibrationRows
    from gpuyard.predict.calibration.calibrate import Calibrated, Refused

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
        Path | None, typer.Option(help="File to write (default: gpuyard's own).")
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
    from gpuyard import paths
    from gpuyard.files import write_text

    target = output or paths.calibration_file()
    if remove:
        _remove(target, dry_run=dry_run, json_output=json_output)
        return
    from gpuyard.cli.calibration_tables import print_calibrated
    from gpuyard.errors import GpuyardError
    from gpuyard.measure.calibrating import as_document

    rows = _rows(results, doubtful_too=doubtful)
    done, refused = _fit(rows)
    notes = [*rows.notes, *(f"Left out: {r.hardware.label}: {r.sentence}." for r in refused)]
    if not done:
        raise GpuyardError(_too_few(rows, refused))
    kept = [one for one in done if force or not one.worse]
    document = as_document(kept, rows)
    if json_output:
        print_json(
            {
                "written": str(target) if kept and not dry_run else None,
                "calibration": document.as_json() if kept else None,
                "worse": [as_document([one], rows).as_json()["hardware"][0] for one in done if one.worse],
                "notes": notes,
            }
        )  # fmt: skip
    else:
        print_calibrated(done)
    out = console(stderr=json_output)
    for note in notes:
        out.print(note, highlight=False, markup=False, soft_wrap=True)
    if dry_run:
        what = f"would be written to {target}" if kept else "would not be written: it is worse"
        out.print(f"Dry run: {what}", highlight=False, markup=False, soft_wrap=True)
        return
    if not kept:
        raise GpuyardError(
            "on configurations that the fit had not seen, predictions would be worse than with the "
            "defaults, so nothing was written; measure more, on a machine with nothing else to do, "
            "or write it all the same with --force"
        )
    write_text(target, document.model_dump_json(indent=1) + "\n")
    out.print(
        f"Written to {target}; take it away with: gpuyard calibrate --remove"
        + (f" --output {output}" if output else ""),
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def _rows(results: list[Path] | None, *, doubtful_too: bool) -> "CalibrationRows":
    from gpuyard import paths
    from gpuyard.errors import GpuyardError
    from gpuyard.measure import Results, calibration_rows, read_results

    store = paths.results_file()
    if results:
        found = read_results(results)
    else:
        found = read_results([store]) if store.exists() else Results((), ())
    if not found.measurements:
        where = ", ".join(map(str, results or [store]))
        raise GpuyardError(f"no training run is in {where}; make some with: {_MEASURE}")
    return calibration_rows(found.measurements, found.benches, doubtful_too=doubtful_too)


def _fit(rows: "CalibrationRows") -> "tuple[list[Calibrated], list[Refused]]":
    from rich.progress import BarColumn, Progress, TextColumn

    from gpuyard.errors import MissingRequirement
    from gpuyard.predict.calibration.calibrate import calibrate as fit_and_check
    from gpuyard.predict.calibration.rows import Hardware

    try:
        import scipy.optimize  # noqa: F401
    except ImportError as missing:
        raise MissingRequirement(
            "calibrating needs scipy; get it with: pip install 'gpuyard[fit]'"
        ) from missing
    columns = (TextColumn("{task.description}"), BarColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        task = progress.add_task("fitting", total=None)

        def show(hardware: Hardware, fold: int, folds: int) -> None:
            label = f"checking {hardware.label}"
            progress.update(task, description=label, completed=fold, total=folds)

        return fit_and_check(rows.rows, rows.links, on_fold=show)


def _too_few(rows: "CalibrationRows", refused: "list[Refused]") -> str:
    if not refused:
        return "; ".join(rows.notes) or "no run can be used"
    listed = "; ".join(f"{one.hardware.label} has {one.sentence}" for one in refused)
    return (
        f"too little was measured to calibrate: {listed}; make more, of several batch sizes and "
        f"worker counts, with: {_MEASURE}" + "".join(f"\n{note}" for note in rows.notes)
    )


def _remove(target: Path, *, dry_run: bool, json_output: bool) -> None:
    from gpuyard.errors import GpuyardError

    there = target.exists()
    if there and not dry_run:
        try:
            target.unlink()
        except OSError as error:
            raise GpuyardError(f"{target} can't be removed: {error.strerror}") from error
    if json_output:
        print_json({"removed": str(target) if there and not dry_run else None})
        return
    if not there:
        said = f"There is no calibration at {target}"
    else:
        said = f"{'Would remove' if dry_run else 'Removed'} {target}"
    console().print(said, highlight=False, markup=False, soft_wrap=True)
