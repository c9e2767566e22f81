"""`gpuyard usage`: who used how many GPU-hours."""

from typing import Annotated

import typer

from gpuyard.cli.output import JsonOption, show


def usage(
    *,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only recent use, like '30 days' (default: all)."),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Show GPU-hours by user, group, and project, with their utilization and cloud cost.

    Example: gpuyard usage --since "30 days"
    """
    from gpuyard.report.answers.share.use import usage_answer
    from gpuyard.share.client import open_reader
    from gpuyard.share.clock import Clock
    from gpuyard.share.usage import cloud_price, usage_document
    from gpuyard.units import parse_seconds

    clock = Clock()
    begin = clock.wall() - parse_seconds(since) if since else None
    client = open_reader()
    document = usage_document(
        client.history(max(0.0, begin or 0.0)), clock, cloud_price(client.config), begin
    )
    show(usage_answer(document), json_output=json_output)
