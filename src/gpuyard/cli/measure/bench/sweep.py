"""`gpuyard bench sweep`: measure every combination of a sweep file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.measure.bench.running import results_store, run_matrix_with_progress
from gpuyard.cli.options import DryRunOption, FreshOption
from gpuyard.cli.output import JsonOption, check_output_file, show, show_if_not_stored

if TYPE_CHECKING:
    from gpuyard.measure.training.matrix import Matrix, MatrixResult


def sweep(
    file: Annotated[Path, typer.Argument(help="A *.sweep.yaml.")],
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            help="Also write the measurements to this file, as JSON lines.",
            callback=check_output_file,
        ),
    ] = None,
    svg: Annotated[
        Path | None,
        typer.Option(
            help="Also draw how each workload scales, to this file.", callback=check_output_file
        ),
    ] = None,
    fresh: FreshOption = False,
    dry_run: DryRunOption = False,
    json_output: JsonOption = False,
) -> None:
    """Measure every combination of a sweep file; if it is killed, it continues where it stopped.

    A run is rejected if its windows differ by more than 20%, its loss is not a number, other programs used its
    cores, or it is faster than the hardware can be. gpuyard stores it with the reason and measures the point again.

    Example: gpuyard bench sweep examples/choke.sweep.yaml
    """
    from gpuyard.catalog.specfiles import read_sweep
    from gpuyard.errors import GpuyardError, UserMistake
    from gpuyard.files import write_text
    from gpuyard.measure import to_json_lines
    from gpuyard.measure.training.matrix import plan_matrix
    from gpuyard.measure.training.tables import build_matrix_table, build_sweep_table
    from gpuyard.report.answers.results import content_answer

    spec = read_sweep(file)
    if svg is not None and 1 not in spec.nodes:
        raise UserMistake(f"{file}: --svg draws the scaling relative to one node; add 1 to 'nodes'")
    matrix = plan_matrix(spec, file.parent)
    store = results_store()
    if dry_run:
        stored = set() if fresh else matrix.find_stored_keys(store)
        plan_table = build_matrix_table(matrix.name, matrix.sweeps, stored)
        show(content_answer([plan_table], matrix.describe(stored)), json_output=json_output)
        return
    with show_if_not_stored(
        json_output=json_output,
        document=lambda record: {"name": matrix.name, "measurements": [record], "rejected": []},
    ):
        result = run_matrix_with_progress(matrix, store, fresh=fresh)
    try:
        if output is not None:
            write_text(output, to_json_lines(result.measurements))
        if svg is not None:
            from gpuyard.report.scaling import draw_scaling

            write_text(svg, draw_scaling(result.measurements, matrix.name))
    except GpuyardError as error:
        raise GpuyardError(
            f"{error}; all measurements are stored in {store.path}: run it again, nothing is measured twice"
        ) from error
    table = build_sweep_table(matrix.name, result.measurements)
    show(content_answer([table], _as_json(matrix, result)), json_output=json_output)
    if result.rejected:
        raise GpuyardError(
            f"{len(result.rejected)} of {matrix.points} points have no valid run; see "
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
