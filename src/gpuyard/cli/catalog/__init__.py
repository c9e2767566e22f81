"""`gpuyard catalog`: show facts about hardware, models, and prices, each with its source and date."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from gpuyard.cli.catalog.fabric import cables, storage, storage_needs, switches
from gpuyard.cli.catalog.facility import electricity, facility_costs, pdus, plugs, servers
from gpuyard.cli.catalog.gpu_ranking import add_gpus
from gpuyard.cli.catalog.hardware import (
    cpus,
    links,
    machines,
    models,
    published,
    staged_copies,
    transformers,
)
from gpuyard.cli.catalog.options import declare_options
from gpuyard.cli.catalog.prices import (
    chassis,
    cloud_data,
    gpu_prices,
    instance_networks,
    past_prices,
    ports,
    prices,
    tiers,
)
from gpuyard.cli.catalog.view import RowFilter, View
from gpuyard.cli.completion import complete_models
from gpuyard.cli.output import show

app = typer.Typer(
    help="Show hardware, parts, models, and prices, each with its source and date.",
    no_args_is_help=True,
)


def _add(view: Callable[[], View], *filters: str) -> None:
    def command(name: str | None = None, *, json_output: bool = False, **options: Any) -> None:
        show(view().answer(name, RowFilter(**options)), json_output=json_output)

    app.command(view.__name__.replace("_", "-"), help=view.__doc__)(
        declare_options(command, view, *filters)
    )


_GPU, _GPU_AND_CLOUD = ("gpu", "min_memory"), ("gpu", "cloud", "min_memory")
add_gpus(app)
_add(machines, *_GPU)
for _view in (cpus, links, models, transformers):
    _add(_view)
_add(staged_copies, *_GPU)
for _view in (prices, past_prices, instance_networks):
    _add(_view, *_GPU_AND_CLOUD)
_add(gpu_prices, *_GPU)
for _view in (chassis, tiers, ports):
    _add(_view)
_add(cloud_data, "cloud")
for _view in (servers, pdus, plugs, facility_costs, electricity, switches, cables, storage):
    _add(_view)
_add(storage_needs, *_GPU)


def _show_published(
    name: str | None = None,
    *,
    model: str | None = None,
    json_output: bool = False,
    **options: Any,
) -> None:
    from dataclasses import replace

    from gpuyard.catalog import FactTable
    from gpuyard.errors import UnknownName

    view = published()
    if model is not None:
        models_with_rows = {figure.model for figure in view.table}
        if model not in models_with_rows:
            raise UnknownName("published model", model, models_with_rows)
        rows = (figure for figure in view.table if figure.model == model)
        view = replace(view, table=FactTable("published figure", rows))
    show(view.answer(name, RowFilter(**options)), json_output=json_output)


_ModelFilter = Annotated[
    str | None,
    typer.Option(metavar="WORKLOAD", autocompletion=complete_models, help="Model of the rows."),
]
app.command("published", help=published.__doc__)(
    declare_options(_show_published, published, *_GPU, model=_ModelFilter)
)
