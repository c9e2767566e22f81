"""`gpuyard who`: who holds which GPU, and who waits."""

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuyard.cli.output import JsonOption, show

if TYPE_CHECKING:
    from gpuyard.share.service.desk import Desk

_AGAIN_SECONDS = 2.0


def who(
    *,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh every 2 seconds.")] = False,
    json_output: JsonOption = False,
) -> None:
    """Show each GPU with its leases and how busy it is, the queue, and who breaks the rules.

    Example: gpuyard who --watch
    """
    from gpuyard.report.answers.share.leases import who_answer
    from gpuyard.share.service.desk import open_to_look

    desk = open_to_look()
    while True:
        document = look(desk)
        if watch and not json_output and sys.stdout.isatty():
            sys.stdout.write("\x1b[H\x1b[2J")
        show(who_answer(document), json_output=json_output)
        if not watch:
            return
        sys.stdout.flush()
        time.sleep(_AGAIN_SECONDS)


def look(desk: "Desk") -> dict[str, Any]:
    """What there is now, for programs."""
    from gpuyard.share.isolation.groups import Groups
    from gpuyard.share.service.desk import read_gpus
    from gpuyard.share.store.clock import Clock
    from gpuyard.share.store.config import share_directory
    from gpuyard.share.watch.views import who_document
    from gpuyard.share.watch.violations import find_violations

    clock = Clock()
    readings = read_gpus(desk)
    if desk.config.scheduler == "slurm":
        from gpuyard.share.slurm.jobs import jobs_document

        return jobs_document(desk.config, readings)
    state = desk.state()
    violations = find_violations(
        state.held, readings, clock.boot(), desk.config.rules.idle_grace_seconds
    )
    isolated = Groups(share_directory()).ids()
    return who_document(desk.config, state, clock, readings, violations, isolated=isolated)
