"""`gpuyard usage`: who used how many GPU-hours."""

from typing import Annotated

import typer

from gpuyard.cli.output import JsonOption, show


def usage(
    *,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Begin, like '30 days' ago or 2026-11-01 (default: all)."
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="End, like '1 day' ago or 2026-12-01 (default: now)."),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Show GPU-hours by user, group, and project, with their utilization and cloud cost.

    Example: gpuyard usage --since "30 days"
    """
    from gpuyard.api.share import usage as sum_usage

    show(sum_usage(since, until).answer, json_output=json_output)
