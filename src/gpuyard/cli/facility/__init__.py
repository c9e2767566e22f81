"""`gpuyard facility`: design the room for a cluster. `facility FILE` is short for `facility design FILE`."""

from importlib import import_module

import typer

from gpuyard.cli.default_command import run_by_default
from gpuyard.cli.options import PrintsWithoutFile

_COMMANDS = ("design", "plugs", "fabric", "storage")
_PRINTING = ("design", "plugs")


app = typer.Typer(
    cls=run_by_default("design"),
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
