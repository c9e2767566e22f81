"""`gpuyard bench links`: measure this machine's links, and find those that are too slow."""

from functools import partial
from typing import Annotated

import typer

from gpuyard.cli.measure.bench.running import run_bench
from gpuyard.cli.options import DryRunOption
from gpuyard.cli.output import JsonOption


def links(
    *,
    size: Annotated[
        str,
        typer.Option(
            "--bytes", metavar="SIZE", help="Size of one copy in one direction, e.g. 256MB."
        ),
    ] = "256 MB",
    repeats: Annotated[int, typer.Option(help="Number of repeats per link.")] = 5,
    dry_run: DryRunOption = False,
    json_output: JsonOption = False,
) -> None:
    """Measure the speed of this machine's links, and report those that are slower than expected.

    Measures the host with each GPU and every pair of GPUs (with and without peer access, one way and both ways);
    memory by the number of copying cores; and TCP between two processes over loopback. GPU links are compared with
    the model of this machine. If one is more than 25% below, gpuyard lists the likely causes.

    Example: gpuyard bench links --bytes 256MB --repeats 5
    """
    from gpuyard.api.hardware_bench import links as measure_links

    run = partial(measure_links, size, repeats=repeats)
    run_bench(run, dry_run=dry_run, json_output=json_output)
