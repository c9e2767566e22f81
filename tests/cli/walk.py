"""All commands of the program, for tests that hold for each of them."""

from functools import cache
from typing import Any

import typer

from gpuyard.cli.app import app


def _walk(command: Any, name: str) -> dict[str, Any]:
    commands = {name: command}
    for child, subcommand in getattr(command, "commands", {}).items():
        commands |= _walk(subcommand, f"{name} {child}".strip())
    return commands


@cache
def every_command() -> dict[str, Any]:
    """Return the commands by name: `topo compare`; groups also, and the program as an empty name."""
    root: Any = typer.main.get_command(app)
    root.list_commands(None)  # loads them
    return _walk(root, "")


def get_parameters(command: Any) -> list[Any]:
    """Return the options and arguments as the help shows them."""
    shown: list[Any] = command.get_params(typer.Context(command))
    return shown
