"""`gpuyard cost hybrid`: find how many GPUs to own for a demand, with the rest rented."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard import units
from gpuyard.api.cost import choose_price_date, create_owned, describe_electricity
from gpuyard.cli.cost.options import (
    GpusPerMachineOption,
    HorizonOption,
    PriceDateOption,
    RunningOptions,
    expand_option_groups,
    quantity_option,
    share_option,
    usd_option,
)
from gpuyard.cli.output import JsonOption, PageOption, show, show_status
from gpuyard.errors import UserMistake

if TYPE_CHECKING:
    from gpuyard.economics.capacity_mix import CapacityMix
    from gpuyard.economics.demand import Demand
    from gpuyard.economics.hybrid import HybridPrices
    from gpuyard.economics.ownership import Owned


class LoadName(StrEnum):
    """The shape of a demand over a year."""

    STEADY = "steady"
    WORKING_HOURS = "working-hours"
    SPIKY = "spiky"


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
        LoadName | None,
        typer.Option(metavar="LOAD", help="Shape of the demand: steady, working-hours, or spiky."),
    ] = None,
    gpus: Annotated[
        float, typer.Option(min=0, help="GPUs needed at busy times, with --load.")
    ] = 8.0,
    base_share: Annotated[
        float, share_option("Share of them at other times, with --load (default: 10%).")
    ] = 0.1,
    busy_share: Annotated[
        float, share_option("Busy share of the year, with --load spiky (default: 5%).")
    ] = 0.05,
    every: Annotated[
        float | None,
        quantity_option(
            units.parse_seconds, "TIME", "Period of a row, with --demand, e.g. '1 hour'."
        ),
    ] = None,
    rent: Annotated[str, typer.Option(metavar="PRICE", help="Rent of one GPU, e.g. '$1.50/h'.")],
    buy: Annotated[float, usd_option("Price of one machine, e.g. '$109008'.")],
    gpus_per_machine: GpusPerMachineOption = 1,
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
    if sum(source is not None for source in (demand, sacct, usage, load)) != 1:
        raise UserMistake("give exactly one of --demand, --sacct, --usage, and --load")
    from gpuyard.economics.billing import parse_hourly_rent
    from gpuyard.economics.demand import demand_from_load
    from gpuyard.economics.hybrid import best_hybrid
    from gpuyard.report.answers.cost.hybrid import hybrid_answer

    if load is not None:
        gpu_demand = demand_from_load(
            load.value, gpus, base_share=base_share, busy_share=busy_share
        )
    else:
        gpu_demand = _read_demand(demand, sacct, usage, None if every is None else every / 3600)
    rented = parse_hourly_rent(
        rent, "--rent must be the price of one GPU by the hour; for a yearly price use --reserved"
    )
    prices = _price_gpu_hour(
        create_owned(buy, owning), gpus_per_machine, horizon, rented.usd_per_hour
    )
    answer = hybrid_answer(
        gpu_demand,
        prices,
        best_hybrid(gpu_demand, prices, gpus_per_machine=gpus_per_machine, error=error),
        None if reserved is None else _find_mix(gpu_demand, prices, gpus_per_machine, reserved),
        (rented.date or choose_price_date(price_date)).isoformat(),
        electricity=describe_electricity(owning),
        with_chart=html is not None,
    )
    show(answer, json_output=json_output, html=html)


def _read_demand(
    table: Path | None, sacct: Path | None, usage: Path | None, hours_each: float | None
) -> "Demand":
    from gpuyard.economics.demand import demand_from_csv, demand_from_sacct
    from gpuyard.economics.usage import demand_from_usage, read_usage
    from gpuyard.files import read_text

    path = table or sacct or usage
    text = read_text(path) if path else ""
    with show_status(f"reading {path}"):
        if sacct is not None:
            return demand_from_sacct(text, str(path))
        if usage is not None:
            return demand_from_usage(read_usage(text, str(path)), str(path))
        return demand_from_csv(text, str(path), hours_each)


def _price_gpu_hour(
    machine: "Owned", gpus_per_machine: int, months: int, rent_usd: float
) -> "HybridPrices":
    """Split a machine's cost per GPU and hour into the idle cost and the extra cost of use."""
    from dataclasses import replace

    from gpuyard.economics.billing import HOURS_PER_MONTH
    from gpuyard.economics.hybrid import HybridPrices
    from gpuyard.economics.ownership import owned_usd

    gpu_hours = gpus_per_machine * months * HOURS_PER_MONTH
    idle, busy = (
        float(owned_usd(replace(machine, utilization=used), months / 12)) / gpu_hours
        for used in (0.0, 1.0)
    )
    return HybridPrices(owned_usd=idle, rented_usd=rent_usd, running_usd=busy - idle)


def _find_mix(
    demand: "Demand", prices: "HybridPrices", gpus_per_machine: int, reserved: str
) -> "CapacityMix":
    from gpuyard.economics.billing import HOURS_PER_YEAR, parse_rent_price
    from gpuyard.economics.capacity_mix import CapacityTier, best_mix

    price = parse_rent_price(reserved)
    reserved_usd = price.usd_per_year / HOURS_PER_YEAR if price.usd_per_year else price.usd_per_hour
    tiers = (
        CapacityTier(
            "owned", prices.owned_usd, prices.running_usd, gpus_per_machine=gpus_per_machine
        ),
        CapacityTier("reserved", reserved_usd),
    )
    return best_mix(demand, tiers, prices.rented_usd)
