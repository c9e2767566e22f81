"""`gpuyard bench`: measure on this machine."""

import typer

from gpuyard.cli.bench.collectives import collectives
from gpuyard.cli.bench.links import links
from gpuyard.cli.bench.relief import relief
from gpuyard.cli.bench.storage import storage
from gpuyard.cli.bench.sweep import sweep
from gpuyard.cli.bench.train import train

app = typer.Typer(help="Measure on this machine.", no_args_is_help=True)


@app.callback()
def bench() -> None:
    """Measure on this machine."""


for command in (train, collectives, relief, storage, sweep, links):
    app.command()(command)
