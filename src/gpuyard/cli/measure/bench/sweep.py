"""`gpuyard bench sweep`: every combination of a sweep file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.measure.bench.running import results_store, run_with_bar
from gpuyard.cli.options import DryRunOption, FreshOption
from gpuyard.cli.output import JsonOption, show, shown_if_not_stored, writable

if TYPE_CHECKING:
    from gpuyard.measure.training.matrix import Matrix, MatrixResult


def sweep(
    file: Annotated[Path, typer.Argument(help="A *.sweep.yaml.")],
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            help="Also write the measurements to this file, as JSON lines.", callback=writable
        ),
    ] = None,
    svg: Annotated[
        Path | None,
        typer.Option(help="Also draw how each workload scales, to this file.", callback=writable),
    ] = None,
    fresh: FreshOption = False,
    dry_run: DryRunOption = False,
    json_output: JsonOption = False,
) -> None:
    """Measure every combination of a sweep file; if it is killed, it continues where it stopped.

    A run that is not credible (windows that differ by more than 20 %, a loss that is not a number, other
    programs on the cores, faster than the hardware) is kept with its reason, tried again, and never counted.

    Example: gpuyard bench sweep examples/choke.sweep.yaml
    """
    from gpuyard.catalog.specfiles import read_sweep
    from gpuyard.errors import GpuyardError, UserMistake
    from gpuyard.files import write_text
    from gpuyard.measure import to_json_lines
    from gpuyard.measure.training.matrix import plan_matrix
    from gpuyard.measure.training.tables import matrix_listing, sweep_listing
    from gpuyard.report.answers.results import shown_answer

    spec = read_sweep(file)
    if svg is not None and 1 not in spec.nodes:
        raise UserMistake(
            f"{file}: --svg draws how it scales from one node on: put 1 into 'nodes', too"
        )
    matrix = plan_matrix(spec, file.parent)
    store = results_store()
    if dry_run:
        stored = set() if fresh else matrix.stored_keys(store)
        listing = matrix_listing(matrix.name, matrix.sweeps, stored)
        show(shown_answer([listing], matrix.describe(stored)), json_output=json_output)
        return
    with shown_if_not_stored(
        json_output=json_output,
        document=lambda one: {"name": matrix.name, "measurements": [one], "rejected": []},
    ):
        result = run_with_bar(matrix, store, fresh=fresh)
    try:
        if output is not None:
            write_text(output, to_json_lines(result.measurements))
        if svg is not None:
            from gpuyard.report.scaling import scaling_picture

            write_text(svg, scaling_picture(result.measurements, matrix.name))
    except GpuyardError as error:
        raise GpuyardError(
            f"{error}; all measurements are kept in {store.path}: run it again, nothing is measured twice"
        ) from error
    listing = sweep_listing(matrix.name, result.measurements)
    show(shown_answer([listing], _as_json(matrix, result)), json_output=json_output)
    if result.rejected:
        raise GpuyardError(
            f"{len(result.rejected)} of {matrix.points} points have no credible run; see "
            "`gpuyard results list --kind rejected`, and run it again when the machine is quiet"
        )


def _as_json(matrix: "Matrix", result: "MatrixResult") -> dict[str, object]:
    return {
        "name": matrix.name,
        "measurements": [m.model_dump(mode="json") for m in result.measurements],
        "rejected": [
            {
                "workload": sweep.workload.name,
                "remedy": sweep.remedy.label,
                "workers": point.workers,
                "batch_per_worker": point.batch_per_worker,
                "reason": reason,
            }
            for sweep, point, reason in result.rejected
        ],
    }
