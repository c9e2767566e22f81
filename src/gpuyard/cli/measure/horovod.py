"""`gpuyard horovod`: build Horovod, so that its strategy can be measured."""

from typing import Annotated

import typer

from gpuyard.cli.options import DryRunOption
from gpuyard.cli.output import JsonOption, progress_bar, show

app = typer.Typer(help="Build Horovod for this PyTorch.", no_args_is_help=True)


@app.callback()
def horovod() -> None:
    """Build Horovod for this PyTorch."""


@app.command()
def install(
    *,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Build again even if Horovod is installed.")
    ] = False,
    dry_run: DryRunOption = False,
    json_output: JsonOption = False,
) -> None:
    """Build Horovod 0.28.1 with gloo against the installed PyTorch; this takes some minutes.

    Horovod's build uses C++14, but PyTorch needs C++17, so gpuyard wraps the compiler to use C++17.

    Example: gpuyard horovod install --dry-run
    """
    from gpuyard.api.horovod import install_horovod

    with progress_bar("building") as on_progress:
        result = install_horovod(fresh=fresh, dry_run=dry_run, on_progress=on_progress)
    show(result.answer, json_output=json_output)
