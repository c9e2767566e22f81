"""`gpuyard help`: the help of a command, like `gpuyard COMMAND --help`."""

from typing import Annotated

import typer


def help(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="Command, like predict.")
    ] = None,
) -> None:
    """Show the help of a command; without COMMAND, list all commands.

    Example: gpuyard help predict
    """
    from gpuyard.cli.app import app

    app([*(command or []), "--help"], prog_name="gpuyard")
