"""`gpuyard bench`: measure on this machine."""

from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.bench_collectives import collectives
from gpuyard.cli.bench_relief import relief
from gpuyard.cli.bench_storage import storage
from gpuyard.cli.bench_sweep import sweep
from gpuyard.cli.bench_train import train
from gpuyard.cli.options import DryRunOption, JsonOption, counted, print_json

if TYPE_CHECKING:
    from gpuyard.measure import LinkBench
    from gpuyard.measure.links.plan import LinkPlan

app = typer.Typer(help="Measure on this machine.", no_args_is_help=True)


@app.callback()
def bench() -> None:
    """Measure on this machine."""


app.command()(train)
app.command()(collectives)
app.command()(relief)
app.command()(storage)
app.command()(sweep)


@app.command()
def links(
    *,
    size: Annotated[
        str, typer.Option("--bytes", help="Size of one copy in one direction, like 256MB.")
    ] = "256 MB",
    repeats: Annotated[int, typer.Option(help="How often each link is timed.")] = 5,
    dry_run: DryRunOption = False,
    json_output: JsonOption = False,
) -> None:
    """Measure how fast this machine's links are, and say which are slower than they should be.

    Host and each GPU, every pair of GPUs with and without peer access, one way and both ways; memory by
    cores that copy at once; and TCP between two processes over loopback. Links of GPUs are set beside the
    model of this machine: what is more than 25 % below it is slow, and gets its likely cause.

    Example: gpuyard bench links --bytes 256MB --repeats 5
    """
    from gpuyard import paths, units
    from gpuyard.cli.link_tables import print_links, print_plan
    from gpuyard.measure import ResultsStore
    from gpuyard.measure.links.plan import plan_links

    plan = plan_links(int(units.parse_bytes(size)), repeats)
    if dry_run:
        if json_output:
            print_json(plan.describe())
        else:
            print_plan(plan)
        return
    bench = _run_links(plan)
    ResultsStore(paths.results_file()).add(bench)
    if json_output:
        print_json(bench.model_dump(mode="json"))
        return
    print_links(bench)


def _run_links(plan: "LinkPlan") -> "LinkBench":
    from gpuyard.measure.links.run import run_links

    with counted("looking around", len(plan.links)) as tell:
        return run_links(plan, on_link=lambda link, done: tell(done, link.label))
