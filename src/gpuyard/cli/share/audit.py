"""`gpuyard audit`: whether everybody keeps to their leases."""

from typing import Annotated

import typer

from gpuyard.cli.output import JsonOption, show


def audit(
    *,
    warn: Annotated[
        bool, typer.Option("--warn", help="Also tell the users, on their terminals.")
    ] = False,
    stop_after: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="End what has broken a rule for this long (default: never)."
        ),
    ] = None,
    enforce: Annotated[
        bool, typer.Option("--enforce", help="Warn or stop as `share policy` says; for a timer.")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Find processes on GPUs that they have no lease for, and leases that are idle. Exits 1 if there are any.

    Example: gpuyard audit
    """
    from gpuyard.report.answers.share.use import audit_answer
    from gpuyard.share.service.desk import open_to_look, owned_directory, read_gpus
    from gpuyard.share.store.clock import Clock
    from gpuyard.share.store.config import share_directory
    from gpuyard.share.turns.rules import NOTHING, STOP
    from gpuyard.share.watch.violations import find_violations
    from gpuyard.share.watch.violations import stop_after as end_after
    from gpuyard.share.watch.violations import warn as tell
    from gpuyard.units import parse_seconds

    directory = owned_directory() if warn or stop_after or enforce else share_directory()
    desk = open_to_look()
    rules = desk.config.rules
    grace = parse_seconds(stop_after) if stop_after else None
    if enforce:
        warn = warn or rules.on_violation != NOTHING
        if grace is None and rules.on_violation == STOP:
            grace = rules.stop_after_seconds
    clock = Clock()
    readings = read_gpus(desk)
    found = find_violations(desk.state().held, readings, clock.boot(), rules.idle_grace_seconds)
    told = tell(found) if warn else []
    ended = end_after(desk, directory, found, grace, clock) if grace is not None else []
    readable = bool(readings) or any(gpu.fake for gpu in desk.config.gpus)
    show(
        audit_answer(found, told, ended, readable=readable, guard=desk.config.guard),
        json_output=json_output,
    )
    if found:
        raise typer.Exit(1)
