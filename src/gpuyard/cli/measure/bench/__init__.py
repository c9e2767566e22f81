"""`gpuyard bench`: measure on this machine."""

import typer

from gpuyard.cli.measure.bench.collectives import collectives
from gpuyard.cli.measure.bench.links import links
from gpuyard.cli.measure.bench.relief import relief
from gpuyard.cli.measure.bench.storage import storage
from gpuyard.cli.measure.bench.sweep import sweep
from gpuyard.cli.measure.bench.train import train

app = typer.Typer(help="Measure on this machine.", no_args_is_help=True)


@app.callback()
def bench() -> None:
    """Measure on this machine."""


for command in (train, collectives, relief, storage, sweep, links):
    app.command()(command)
