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
    from gpuyard.api.share import audit as find_violations

    result = find_violations(warn=warn, stop_after=stop_after, enforce=enforce)
    show(result.answer, json_output=json_output)
    if len(result):
        raise typer.Exit(1)
