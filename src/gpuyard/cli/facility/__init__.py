"""`gpuyard facility`: design the room for a cluster. `facility FILE` is short for `facility design FILE`."""

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from gpuyard.cli.options import PrintsWithoutFile

_COMMANDS = ("design", "plugs", "fabric", "storage")
_DEFAULT = "design"
_PRINTING = ("design", "plugs")


class DesignByDefault(TyperGroup):
    """A group that runs `design` if its first argument is not a command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, "-h", "--help"}:
            args = [_DEFAULT, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=DesignByDefault,
    help="Design the room: power, plugs, racks, cooling, cables, switches, and storage.",
    epilog="gpuyard facility FILE.cluster.yaml is short for gpuyard facility design FILE.cluster.yaml",
    no_args_is_help=True,
)


@app.callback()
def facility() -> None:
    """Design the room: power, plugs, racks, cooling, cables, switches, and storage.

    Example: gpuyard facility apollo.cluster.yaml --site office.site.yaml
    """


for _name in _COMMANDS:
    app.command(_name, cls=PrintsWithoutFile if _name in _PRINTING else None)(
        getattr(import_module(f"gpuyard.cli.facility.{_name}"), _name)
    )
