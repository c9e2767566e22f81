"""`gpuyard bench sweep`: every combination of a sweep file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.options import (
    DryRunOption,
    FreshOption,
    JsonOption,
    console,
    print_json,
    print_table,
)

if TYPE_CHECKING:
    from gpuyard.measure.store import ResultsStore
    from gpuyard.measure.training.matrix import Matrix, MatrixEvent, Outcome
    from gpuyard.measure.training.sweep import Sweep


def sweep(
    file: Annotated[Path, typer.Argument(help="A *.sweep.yaml.")],
    *,
    output: Annotated[
        Path | None, typer.Option(help="Also write the measurements to this file, as JSON lines.")
    ] = None,
    svg: Annotated[
        Path | None, typer.Option(help="Also draw how each workload scales, to this file.")
    ] = None,
    fresh: FreshOption = False,
    dry_run: DryRunOption = False,
    json_output: JsonOption = False,
) -> None:
    """Measure every combination of a sweep file; killed at any time, it goes on where it was.

    A run that is not credible (windows that differ by more than 20 %, a loss that is no number, other programs
    on the cores, faster than the hardware) is kept with its reason, tried again, and never counted.

    Example: gpuyard bench sweep examples/choke.sweep.yaml
    """
    from gpuyard import paths
    from gpuyard.catalog.specfiles import read_sweep
    from gpuyard.errors import GpuyardError, UserMistake
    from gpuyard.files import check_writable, write_text
    from gpuyard.measure import ResultsStore, to_json_lines
    from gpuyard.measure.training.matrix import plan_matrix

    spec = read_sweep(file)
    if svg is not None and 1 not in spec.nodes:
        raise UserMistake(
            f"{file}: --svg draws how it scales from one node on: put 1 into 'nodes', too"
        )
    matrix = plan_matrix(spec, file.parent)
    store = ResultsStore(paths.results_file())
    if dry_run:
        _show_plan(matrix, store, fresh=fresh, json_output=json_output)
        return
    for written in (output, svg):
        if written is not None:
            check_writable(written.parent)
    outcome = _run(matrix, store, fresh=fresh)
    try:
        if output is not None:
            write_text(output, to_json_lines(outcome.measurements))
        if svg is not None:
            from gpuyard.report.scaling import scaling_picture

            write_text(svg, scaling_picture(outcome.measurements, matrix.name))
    except GpuyardError as error:
        raise GpuyardError(
            f"{error}; all measurements are kept in {store.path}: run it again, nothing is measured twice"
        ) from error
    if json_output:
        print_json(_as_json(matrix, outcome))
    else:
        _show(matrix, outcome)
    if outcome.rejected:
        raise GpuyardError(
            f"{len(outcome.rejected)} of {matrix.points} points have no credible run; see "
            "`gpuyard results list --kind rejected`, and run it again when the machine is quiet"
        )


def _run(matrix: "Matrix", store: "ResultsStore", *, fresh: bool) -> "Outcome":
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from gpuyard.measure.training.matrix import run_matrix
    from gpuyard.units import format_seconds

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]}"),
        console=console(stderr=True),
        transient=True,
    ) as progress:
        bar = progress.add_task("starting", total=matrix.points, left="")

        def show(told: "MatrixEvent") -> None:
            event = told.event
            what = f"{_label(told.sweep)}, {event.point.workers} × {event.point.batch_per_worker}"
            left = f"{format_seconds(max(1, round(told.left_seconds)))} left"
            progress.update(bar, completed=told.done, description=what, left=left)
            if event.state == "finished" and event.measurement is not None:
                rate = f"{event.measurement.samples_per_second:,.1f} samples/s"
                progress.console.print(f"{what}: {rate}", highlight=False, markup=False)
            elif event.state == "rejected":
                progress.console.print(
                    f"{what}: rejected: {event.reason}", highlight=False, markup=False
                )

        return run_matrix(matrix, store, on_event=show, fresh=fresh)


def _label(sweep: "Sweep") -> str:
    from gpuyard.units import format_bit_rate

    parts = [sweep.workload.name]
    if sweep.strategy != "ddp":
        parts.append(sweep.strategy)
    rate = sweep.place.record(1).link_bytes_per_second
    if rate is not None:
        parts.append(format_bit_rate(rate))
    if not sweep.remedy.plain:
        parts.append(sweep.remedy.label)
    if sweep.repeat:
        parts.append(f"again ({sweep.repeat})")
    return ", ".join(parts)


def _show_plan(matrix: "Matrix", store: "ResultsStore", *, fresh: bool, json_output: bool) -> None:
    from gpuyard.measure.training.matrix import judge_of
    from gpuyard.measure.training.run import stored_run

    stored = {
        point.key
        for sweep in ([] if fresh else matrix.sweeps)
        for point in sweep.points
        if stored_run(store, point, judge_of(sweep)) is not None
    }
    if json_output:
        described = matrix.describe()
        for shown, sweep in zip(described["sweeps"], matrix.sweeps, strict=True):
            for point, planned in zip(shown["points"], sweep.points, strict=True):
                point["stored"] = planned.key in stored
        print_json(described)
        return
    rows = [
        [
            _label(sweep),
            str(point.workers),
            str(point.batch_per_worker),
            "in the store" if point.key in stored else "would be measured",
        ]
        for sweep in matrix.sweeps
        for point in sweep.points
    ]
    print_table(f"{matrix.name}: {matrix.points} points", ["", "workers", "batch", ""], rows)


def _show(matrix: "Matrix", outcome: "Outcome") -> None:
    from gpuyard.cli.run_tables import device_of, where_of
    from gpuyard.units import format_seconds

    rows = [
        [
            m.workload,
            device_of(m),
            where_of(m),
            m.remedy.label,
            str(m.workers),
            str(m.batch_per_worker),
            f"{m.samples_per_second:,.1f}",
            format_seconds(m.step.step_seconds),
            format_seconds(m.step.exposed_communication_seconds),
        ]
        for m in outcome.measurements
    ]
    columns = ["workload", "device", "where", "remedy", "workers", "batch"]
    print_table(matrix.name, [*columns, "samples/s", "step", "exposed comm."], rows)


def _as_json(matrix: "Matrix", outcome: "Outcome") -> dict[str, object]:
    return {
        "name": matrix.name,
        "measurements": [m.model_dump(mode="json") for m in outcome.measurements],
        "rejected": [
            {
                "workload": sweep.workload.name,
                "remedy": sweep.remedy.label,
                "workers": point.workers,
                "batch_per_worker": point.batch_per_worker,
                "reason": reason,
            }
            for sweep, point, reason in outcome.rejected
        ],
    }
