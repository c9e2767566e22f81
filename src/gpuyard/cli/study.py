"""`gpuyard study`: the whole row in one command."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.calibrations import CalibrationOption, chosen_calibration
from gpuyard.cli.options import FreshOption, JsonOption, console, print_json

if TYPE_CHECKING:
    from gpuyard.measure import ResultsStore
    from gpuyard.predict import Calibration
    from gpuyard.specs.study import Study
    from gpuyard.study import StudyResult


def study(
    file: Annotated[Path, typer.Argument(help="A *.study.yaml.")],
    *,
    output: Annotated[Path, typer.Option(help="Directory for report.html and study.json.")] = Path(
        "study"
    ),
    fresh: FreshOption = False,
    calibration: CalibrationOption = None,
    json_output: JsonOption = False,
) -> None:
    """Measure here, predict elsewhere, price, and write one report with a verdict for each workload.

    Example: gpuyard study examples/spoken-digits.study.yaml --output study
    """
    from gpuyard import paths
    from gpuyard.catalog.specfiles import read_study
    from gpuyard.files import check_writable
    from gpuyard.measure import ResultsStore
    from gpuyard.report.page import write_report

    spec = read_study(file)
    check_writable(output)  # before minutes of measuring, not after
    constants = chosen_calibration(calibration)
    store = ResultsStore(paths.results_file())
    result = _run(spec, file.parent, store, fresh=fresh, calibration=constants)
    report = write_report(result, output)
    if json_output:
        print_json(result.as_json())
    else:
        _print_verdicts(result)
    console(stderr=json_output).print(f"report: {report}", highlight=False, soft_wrap=True)


def _run(
    spec: "Study",
    directory: Path,
    store: "ResultsStore",
    *,
    fresh: bool,
    calibration: "Calibration | None",
) -> "StudyResult":
    from rich.progress import BarColumn, Progress, TextColumn

    from gpuyard.study import StudyProgress, run_study
    from gpuyard.units import format_seconds

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]}"))
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        task = progress.add_task("starting", total=None, left="")

        def show(event: StudyProgress) -> None:
            left = (
                "" if event.left_seconds is None else f"{format_seconds(event.left_seconds)} left"
            )
            progress.update(
                task, description=event.what, completed=event.done, total=event.total, left=left
            )

        return run_study(
            spec, directory, store, on_progress=show, fresh=fresh, calibration=calibration
        )


def _print_verdicts(result: "StudyResult") -> None:
    from rich.markup import escape

    from gpuyard.units import format_share

    out = console()
    for workload in result.workloads:
        verdict = workload.verdict
        colour = {"gpu": "green", "network": "red"}.get(verdict.choke, "yellow")
        out.print(f"[bold]{escape(workload.name)}[/]: [bold {colour}]{escape(verdict.headline)}[/]")
        out.print(f"  {escape(verdict.sentence)}", highlight=False)
        leading = (f.remedies for f in verdict.findings if f.sentence in verdict.sentence)
        remedies = next(leading, ())
        if verdict.choke != "gpu" and remedies:
            helps = ", ".join(f"{r.what} (× {r.gain:.2f})" for r in remedies[:3])
            out.print(f"  What would help: {escape(helps)}.", highlight=False)
    if result.cost is not None:
        cost = result.cost
        sentence = (
            f"Renting at ${cost.rent_usd_per_hour:.2f}/h costs as much as buying after "
            f"{cost.undiscounted_break_even_hours:,.0f} h ({cost.undiscounted_break_even_years:.2f} years)"
        )
        if cost.speed_lead:
            sentence += (
                f", with the {format_share(cost.speed_lead)} speed lead after "
                f"{cost.break_even_hours:,.0f} h ({cost.break_even_years:.2f} years)"
            )
        out.print(f"{sentence}.", highlight=False)
    for note in result.notes:
        out.print(f"Note: {escape(note)}", highlight=False)
