"""`gpuyard horovod`: build Horovod, so that its strategy can be measured."""

from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.options import DryRunOption
from gpuyard.cli.output import JsonOption, progress_bar, show

if TYPE_CHECKING:
    from gpuyard.run.horovod_build import HorovodBuild

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

    Horovod's own build asks for C++14, and PyTorch needs C++17 now: a wrapper around the compiler asks for that.

    Example: gpuyard horovod install --dry-run
    """
    from gpuyard.report.answer import Answer, Drawing, Sentence
    from gpuyard.run.horovod_build import VERSION, build, is_installed, plan_build

    if is_installed() and not fresh and not dry_run:
        words = "Horovod is installed; build it again with --fresh."
        show(
            Answer([Sentence(words)], {"installed": True, "built": False}), json_output=json_output
        )
        return
    plan = plan_build()
    if dry_run:
        lines = _script(plan)
        show(Answer([Drawing(lines=lambda _: lines)], plan.describe()), json_output=json_output)
        return
    from gpuyard.measure.progress import ProgressUpdate

    with progress_bar("building") as tell:
        build(plan, lambda line: tell(ProgressUpdate(line[:70])))
    built = {"installed": True, "built": True, "version": VERSION}
    show(Answer([Sentence(f"Horovod {VERSION} is installed.")], built), json_output=json_output)


def _script(plan: "HorovodBuild") -> list[str]:
    """What would be run, as a shell takes it."""
    import shlex

    environment = [f"{name}={value}" for name, value in plan.environment.items()]
    commands = [shlex.join(command) for command in plan.commands]
    return ["CXX is a wrapper:", *plan.wrapper.splitlines(), *environment, *commands]
