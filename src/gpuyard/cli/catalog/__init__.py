"""`gpuyard catalog`: show facts about hardware, models, and prices, each with its source and date."""

from collections.abc import Callable
from typing import Annotated

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
from gpuyard.cli.catalog.view import (
    CloudFilter,
    DescendingOption,
    GpuFilter,
    MemoryFilter,
    NameArgument,
    RowFilter,
    SortOption,
    View,
)
from gpuyard.cli.output import JsonOption, show

app = typer.Typer(
    help="Show hardware, parts, models, and prices, each with its source and date.",
    no_args_is_help=True,
)


def _add(view: Callable[[], View]) -> None:
    @app.command(view.__name__.replace("_", "-"), help=view.__doc__)
    def _(
        name: NameArgument = None,
        *,
        gpu: GpuFilter = None,
        cloud: CloudFilter = None,
        min_memory: MemoryFilter = None,
        sort: SortOption = None,
        descending: DescendingOption = False,
        json_output: JsonOption = False,
    ) -> None:
        row_filter = RowFilter(gpu, cloud, min_memory, sort, descending)
        show(view().answer(name, row_filter), json_output=json_output)


add_gpus(app)
for _view in (
    machines, cpus, links, models, transformers, staged_copies, prices, past_prices, instance_networks, gpu_prices, chassis, tiers, ports,
    cloud_data, servers, pdus, plugs, facility_costs, electricity, switches, cables, storage, storage_needs,
):  # fmt: skip
    _add(_view)


@app.command("published", help=published.__doc__)
def _published(
    name: NameArgument = None,
    *,
    model: Annotated[str | None, typer.Option(help="Model of the rows.")] = None,
    gpu: GpuFilter = None,
    cloud: CloudFilter = None,
    min_memory: MemoryFilter = None,
    sort: SortOption = None,
    descending: DescendingOption = False,
    json_output: JsonOption = False,
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
    row_filter = RowFilter(gpu, cloud, min_memory, sort, descending)
    show(view.answer(name, row_filter), json_output=json_output)
