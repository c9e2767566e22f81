"""`gpuyard usage`: who used how many GPU-hours."""

from typing import Annotated

import typer

from gpuyard.cli.output import JsonOption, show


def usage(
    *,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Only this much recent time, like '30 days' (default: all)."
        ),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Show GPU-hours by user, group and project, how busy they were, and what they would cost in a cloud.

    Example: gpuyard usage --since "30 days"
    """
    from gpuyard.report.answers.share.use import usage_answer
    from gpuyard.share.service.desk import open_to_look
    from gpuyard.share.store.clock import Clock
    from gpuyard.share.watch.usage import cloud_price, usage_document
    from gpuyard.units import parse_seconds

    clock = Clock()
    begin = clock.wall() - parse_seconds(since) if since else None
    desk = open_to_look()
    desk.state()  # what is dead is closed first
    document = usage_document(desk.history(), clock, cloud_price(desk.config), begin)
    show(usage_answer(document), json_output=json_output)
