"""`gpuyard audit`: check that everyone keeps to their leases."""

from typing import Annotated

import typer

from gpuyard.cli.output import JsonOption, show


def audit(
    *,
    warn: Annotated[
        bool, typer.Option("--warn", help="Also warn the users, on their terminals.")
    ] = False,
    stop_after: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Stop violations that have lasted this long (default: never)."
        ),
    ] = None,
    enforce: Annotated[
        bool,
        typer.Option("--enforce", help="Warn or stop according to `share policy`; for a timer."),
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Find processes that use GPUs without a lease, and idle leases. Exits 1 if there are any.

    Example: gpuyard audit
    """
    from gpuyard.report.answers.share.use import audit_answer
    from gpuyard.share.client import open_reader, owned_directory
    from gpuyard.share.clock import Clock
    from gpuyard.share.config import NOTHING, STOP, share_directory
    from gpuyard.share.views import read_gpus
    from gpuyard.share.violations import find_violations, stop_violations, warn_users
    from gpuyard.units import parse_seconds

    directory = owned_directory() if warn or stop_after or enforce else share_directory()
    client = open_reader()
    rules = client.config.rules
    grace = parse_seconds(stop_after) if stop_after else None
    if enforce:
        warn = warn or rules.on_violation != NOTHING
        if grace is None and rules.on_violation == STOP:
            grace = rules.stop_after_seconds
    clock = Clock()
    readings = read_gpus(client)
    violations = find_violations(
        client.state().held, readings, clock.boot(), rules.idle_grace_seconds
    )
    warned = warn_users(violations) if warn else []
    stopped = [] if grace is None else stop_violations(client, directory, violations, grace, clock)
    readable = bool(readings) or any(gpu.fake for gpu in client.config.gpus)
    show(
        audit_answer(violations, warned, stopped, readable=readable, guard=client.config.guard),
        json_output=json_output,
    )
    if violations:
        raise typer.Exit(1)
