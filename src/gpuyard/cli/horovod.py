"""`gpuyard horovod`: build Horovod, so that its strategy can be measured."""

from typing import Annotated

import typer

from gpuyard.cli.options import DryRunOption, JsonOption, console, print_json

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
    """Build Horovod 0.28.1 with gloo against the PyTorch that is installed; takes some minutes.

    Its own build asks for C++14, which current PyTorch is past; a wrapper around the compiler asks for C++17.

    Example: gpuyard horovod install --dry-run
    """
    import shlex

    from gpuyard.run.horovod_build import VERSION, build, is_installed, plan_build

    out = console(stderr=json_output)
    if is_installed() and not fresh and not dry_run:
        if json_output:
            print_json({"installed": True, "built": False})
        else:
            out.print("Horovod is installed; build it anew with --fresh.", highlight=False)
        return
    plan = plan_build()
    if dry_run:
        if json_output:
            print_json(plan.describe())
            return
        out.print("CXX is a wrapper:", highlight=False)
        out.print(plan.wrapper, highlight=False, markup=False)
        for name, value in plan.environment.items():
            out.print(f"{name}={value}", highlight=False)
        for command in plan.commands:
            out.print(shlex.join(command), highlight=False, markup=False, soft_wrap=True)
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        task = progress.add_task("building", total=None)
        build(plan, lambda line: progress.update(task, description=line[:70]))
    if json_output:
        print_json({"installed": True, "built": True, "version": VERSION})
    else:
        out.print(f"Horovod {VERSION} is installed.", highlight=False)
