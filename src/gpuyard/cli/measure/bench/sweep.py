"""`gpuyard bench sweep`: measure every combination of a sweep file."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from gpuyard.cli.measure.bench.running import run_bench
from gpuyard.cli.options import DryRunOption, FreshOption
from gpuyard.cli.output import JsonOption, check_output_file


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
    from gpuyard.api.training_bench import sweep as measure_sweep
    from gpuyard.catalog.specfiles import read_sweep
    from gpuyard.errors import GpuyardError

    result = run_bench(
        partial(measure_sweep, file, output=output, svg=svg, fresh=fresh),
        dry_run=dry_run,
        json_output=json_output,
        document=lambda record: {
            "name": read_sweep(file).name,
            "measurements": [record],
            "rejected": [],
        },
    )
    if result and result.rejected:
        raise GpuyardError(
            f"{len(result.rejected)} of {len(result.rejected) + len(result.rows)} points have no valid run; see "
            "`gpuyard results list --kind rejected`, and run it again when the machine is quiet"
        )
