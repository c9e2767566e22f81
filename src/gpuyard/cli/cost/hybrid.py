"""`gpuyard cost hybrid`: find how many GPUs to own for a demand, with the rest rented."""

from pathlib import Path
from typing import Annotated

import typer

from gpuyard import units
from gpuyard.choices import Load
from gpuyard.cli.cost.options import (
    GpusPerNodeOption,
    HorizonOption,
    PriceDateOption,
    RunningOptions,
    expand_option_groups,
    quantity_option,
    share_option,
    usd_option,
)
from gpuyard.cli.output import JsonOption, PageOption, show, show_status


@expand_option_groups
def hybrid(
    *,
    demand: Annotated[
        Path | None, typer.Option(help="CSV file with a column gpus or gpu_hours, and time.")
    ] = None,
    sacct: Annotated[
        Path | None, typer.Option(help="Output of sacct -P -X -o JobID,Start,End,AllocTRES.")
    ] = None,
    usage: Annotated[
        Path | None, typer.Option(help="Output of gpuyard usage --json, with all leases.")
    ] = None,
    load: Annotated[
        Load | None,
        typer.Option(help="Shape of the demand."),
    ] = None,
    gpus: Annotated[
        float, typer.Option(metavar="N", min=0, help="GPUs needed at busy times, with --load.")
    ] = 8.0,
    base_share: Annotated[
        float, share_option("Share of them at other times, with --load (default: 10%).")
    ] = 0.1,
    busy_share: Annotated[
        float, share_option("Busy share of the year, with --load spiky (default: 5%).")
    ] = 0.05,
    row_period: Annotated[
        float | None,
        quantity_option(
            units.parse_seconds, "TIME", "Period of a row, with --demand, e.g. '1 hour'."
        ),
    ] = None,
    rent: Annotated[str, typer.Option(metavar="PRICE", help="Rent of one GPU, e.g. '$1.50/h'.")],
    buy: Annotated[float, usd_option("Price of one machine, e.g. '$109008'.")],
    gpus_per_node: GpusPerNodeOption = 1,
    horizon: HorizonOption = 36,
    reserved: Annotated[
        str | None,
        typer.Option(metavar="PRICE", help="Price of a reserved GPU, e.g. '$5000/year'."),
    ] = None,
    error: Annotated[float, share_option("Error of the demand (default: 30%).")] = 0.3,
    owning: RunningOptions,
    price_date: PriceDateOption = None,
    html: PageOption = None,
    json_output: JsonOption = False,
) -> None:
    """Find how many GPUs to own for a demand, with the rest rented, and the cost of an error.

    Example: gpuyard cost hybrid --load working-hours --gpus 16 --rent '$1.50/h' --buy '$8000'
    """
    from gpuyard.api.hybrid import hybrid as find_hybrid

    with show_status("calculating"):
        result = find_hybrid(
            demand=demand,
            sacct=sacct,
            usage=usage,
            load=load,
            gpus=gpus,
            base_share=base_share,
            busy_share=busy_share,
            row_period=row_period,
            rent=rent,
            buy=buy,
            gpus_per_node=gpus_per_node,
            horizon=horizon,
            reserved=reserved,
            error=error,
            price_date=price_date,
            chart=html is not None,
            **vars(owning),
        )
    show(result.answer, json_output=json_output, html=html)
