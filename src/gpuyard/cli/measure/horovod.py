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
    """Build Horovod 0.28.1 with gloo against the installed PyTorch; this takes some minutes.

    Horovod's build uses C++14, but PyTorch needs C++17, so gpuyard wraps the compiler to use C++17.

    Example: gpuyard horovod install --dry-run
    """
    from gpuyard.report.answer import Answer, Drawing, Sentence
    from gpuyard.run.horovod_build import VERSION, build, is_installed, plan_build

    if is_installed() and not fresh and not dry_run:
        sentence = Sentence("Horovod is installed; build it again with --fresh.")
        show(Answer([sentence], {"installed": True, "built": False}), json_output=json_output)
        return
    plan = plan_build()
    if dry_run:
        lines = _format_script(plan)
        show(Answer([Drawing(lines=lambda _: lines)], plan.describe()), json_output=json_output)
        return
    from gpuyard.measure.progress import ProgressUpdate

    with progress_bar("building") as on_progress:
        build(plan, lambda line: on_progress(ProgressUpdate(line[:70])))
    built = {"installed": True, "built": True, "version": VERSION}
    show(Answer([Sentence(f"Horovod {VERSION} is installed.")], built), json_output=json_output)


def _format_script(plan: "HorovodBuild") -> list[str]:
    """Format the commands of the build as a shell script."""
    import shlex

    environment = [f"{name}={value}" for name, value in plan.environment.items()]
    commands = [shlex.join(command) for command in plan.commands]
    return ["CXX is a wrapper:", *plan.wrapper.splitlines(), *environment, *commands]
