"""`gpuyard who`: who holds which GPU, and who waits."""

from typing import Annotated

import typer

from gpuyard.cli.output import JsonOption
from gpuyard.cli.quick_commands import show_who


def who(
    *,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh every 2 seconds.")] = False,
    json_output: JsonOption = False,
) -> None:
    """Show each GPU with its leases and utilization, the queue, and violations of leases.

    Example: gpuyard who --watch
    """
    show_who(watch=watch, json_output=json_output)
