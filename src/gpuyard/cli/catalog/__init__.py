"""`gpuyard catalog`: the facts that gpuyard knows, each with its source and date."""

from collections.abc import Callable
from typing import Annotated

import typer

from gpuyard.cli.catalog.fabric import cables, storage, storage_needs, switches
from gpuyard.cli.catalog.facility import facility_costs, pdus, plugs, servers
from gpuyard.cli.catalog.hardware import cpus, gpus, links, machines, models, staged_copies
from gpuyard.cli.catalog.prices import (
    chassis,
    cloud_data,
    gpu_prices,
    instance_networks,
    past_prices,
    ports,
    prices,
)
from gpuyard.cli.catalog.view import View
from gpuyard.cli.output import JsonOption, show

app = typer.Typer(
    help="Hardware, what it is built with, models and prices, each with source and date.",
    no_args_is_help=True,
)


def _add(view: Callable[[], View]) -> None:
    @app.command(view.__name__.replace("_", "-"), help=view.__doc__)
    def _(
        name: Annotated[str | None, typer.Argument(help="Show one row, whole.")] = None,
        *,
        json_output: JsonOption = False,
    ) -> None:
        show(view().answer(name), json_output=json_output)


for _view in (
    gpus, machines, cpus, links, models, staged_copies, prices, past_prices, instance_networks, gpu_prices, chassis, ports,
    cloud_data, servers, pdus, plugs, facility_costs, switches, cables, storage, storage_needs,
):  # fmt: skip
    _add(_view)
