"""`gpuyard bench links`: how fast this machine's links are, and which are slower than they should be."""

from typing import Annotated

import typer

from gpuyard.cli.measure.bench.running import run_bench
from gpuyard.cli.options import DryRunOption
from gpuyard.cli.output import JsonOption


def links(
    *,
    size: Annotated[
        str, typer.Option("--bytes", help="Size of one copy in one direction, e.g. 256MB.")
    ] = "256 MB",
    repeats: Annotated[int, typer.Option(help="How often each link is timed.")] = 5,
    dry_run: DryRunOption = False,
    json_output: JsonOption = False,
) -> None:
    """Measure how fast this machine's links are, and say which are slower than they should be.

    Host and each GPU, every pair of GPUs with and without peer access, one way and both ways; memory by
    the number of cores that copy at once; and TCP between two processes over loopback. Links of GPUs are
    compared with the model of this machine: more than 25 % below it is slow, and the likely causes are named.

    Example: gpuyard bench links --bytes 256MB --repeats 5
    """
    from gpuyard import units
    from gpuyard.measure.links.plan import plan_links
    from gpuyard.measure.links.run import run_links

    plan = plan_links(int(units.parse_bytes(size)), repeats)
    run_bench(plan, run_links, dry_run=dry_run, json_output=json_output)
