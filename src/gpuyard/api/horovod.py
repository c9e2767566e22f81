"""Build Horovod for the installed PyTorch."""

import shlex

from gpuyard.api.result import Result, Row
from gpuyard.measure.progress import ProgressCallback, ProgressUpdate
from gpuyard.report.answer import Answer, Drawing, Sentence
from gpuyard.run.horovod_build import VERSION, HorovodBuild, build, is_installed, plan_build

_MAX_LINE = 70


def install_horovod(
    *, fresh: bool = False, dry_run: bool = False, on_progress: ProgressCallback | None = None
) -> Result[Row]:
    """Build Horovod, unless it is installed and `fresh` is not set; a dry run returns the commands."""
    if is_installed() and not (fresh or dry_run):
        sentence = Sentence("Horovod is installed; build it again with --fresh.")
        return Result(Answer([sentence], {"installed": True, "built": False}))
    plan = plan_build()
    if dry_run:
        lines = _format_script(plan)
        return Result(Answer([Drawing(lines=lambda _: lines)], plan.describe()))
    report = on_progress or (lambda _progress: None)
    build(plan, lambda line: report(ProgressUpdate(line[:_MAX_LINE])))
    document = {"installed": True, "built": True, "version": VERSION}
    return Result(Answer([Sentence(f"Horovod {VERSION} is installed.")], document))


def _format_script(plan: HorovodBuild) -> list[str]:
    """Format the commands of the build as a shell script."""
    environment = [f"{name}={value}" for name, value in plan.environment.items()]
    commands = [shlex.join(command) for command in plan.commands]
    return ["CXX is a wrapper:", *plan.wrapper.splitlines(), *environment, *commands]
