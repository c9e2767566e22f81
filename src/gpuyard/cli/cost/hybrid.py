"""`gpuyard cost hybrid`: what to own of a demand, with the rest rented."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard import units
from gpuyard.cli.cost.options import (
    GpusPerMachineOption,
    HorizonOption,
    PriceDateOption,
    RunningOptions,
    electricity_words,
    given_on,
    owned_machine,
    quantity,
    share,
    takes_option_groups,
    usd,
)
from gpuyard.cli.output import JsonOption, PageOption, show, working
from gpuyard.errors import UserMistake

if TYPE_CHECKING:
    from gpuyard.economics.capacity_mix import CapacityMix
    from gpuyard.economics.demand import Demand
    from gpuyard.economics.hybrid import HybridPrices
    from gpuyard.economics.ownership import Owned


class LoadName(StrEnum):
    """A demand in words."""

    STEADY = "steady"
    WORKING_HOURS = "working-hours"
    SPIKY = "spiky"


@takes_option_groups
def hybrid(
    *,
    demand: Annotated[
        Path | None, typer.Option(help="A CSV with a column gpus or gpu_hours, and time.")
    ] = None,
    sacct: Annotated[
        Path | None, typer.Option(help="Output of sacct -P -X -o JobID,Start,End,AllocTRES.")
    ] = None,
    usage: Annotated[
        Path | None, typer.Option(help="Output of gpuyard usage --json: who leased GPUs when.")
    ] = None,
    load: Annotated[
        LoadName | None,
        typer.Option(metavar="LOAD", help="In words: steady, working-hours or spiky."),
    ] = None,
    gpus: Annotated[float, typer.Option(min=0, help="With --load: GPUs when busy.")] = 8.0,
    base_share: Annotated[
        float, share("With --load: share of them at other times (default: 10 %).")
    ] = 0.1,
    busy_share: Annotated[
        float, share("With --load spiky: share of the year that is busy (default: 5 %).")
    ] = 0.05,
    every: Annotated[
        float | None,
        quantity(units.parse_seconds, "TIME", "With --demand: length of a row, e.g. '1 hour'."),
    ] = None,
    rent: Annotated[str, typer.Option(metavar="PRICE", help="Renting one GPU, e.g. '$1.50/h'.")],
    buy: Annotated[float, usd("Buying one machine, e.g. '$109008'.")],
    gpus_per_machine: GpusPerMachineOption = 1,
    horizon: HorizonOption = 36,
    reserved: Annotated[
        str | None,
        typer.Option(metavar="PRICE", help="Also reserve GPUs, each at e.g. '$5000/year'."),
    ] = None,
    error: Annotated[float, share("How far off the demand may be (default: 30 %).")] = 0.3,
    owning: RunningOptions,
    price_date: PriceDateOption = None,
    html: PageOption = None,
    json_output: JsonOption = False,
) -> None:
    """Find how many GPUs to own for a demand, with the rest rented, and what an error costs.

    Example: gpuyard cost hybrid --load working-hours --gpus 16 --rent '$1.50/h' --buy '$8000'
    """
    if sum(source is not None for source in (demand, sacct, usage, load)) != 1:
        raise UserMistake("give one of --demand, --sacct, --usage and --load")
    from gpuyard.economics.billing import hourly_rent
    from gpuyard.economics.demand import described_demand
    from gpuyard.economics.hybrid import best_hybrid
    from gpuyard.report.answers.cost.hybrid import hybrid_answer

    if load is not None:
        wanted = described_demand(load.value, gpus, base_share=base_share, busy_share=busy_share)
    else:
        wanted = _read(demand, sacct, usage, None if every is None else every / 3600)
    rented = hourly_rent(
        rent, "--rent is the price of one GPU by the hour; a yearly one is --reserved"
    )
    prices = _prices(owned_machine(buy, owning), gpus_per_machine, horizon, rented.usd_per_hour)
    answer = hybrid_answer(
        wanted,
        prices,
        best_hybrid(wanted, prices, gpus_per_machine=gpus_per_machine, error=error),
        None if reserved is None else _mix(wanted, prices, gpus_per_machine, reserved),
        (rented.date or given_on(price_date)).isoformat(),
        electricity=electricity_words(owning),
    )
    show(answer, json_output=json_output, html=html)


def _read(
    table: Path | None, sacct: Path | None, usage: Path | None, hours_each: float | None
) -> "Demand":
    from gpuyard.economics.demand import demand_from_csv, demand_from_sacct
    from gpuyard.economics.usage import demand_of_usage, read_usage
    from gpuyard.files import read_text

    path = table or sacct or usage
    text = read_text(path) if path else ""
    with working(f"reading {path}"):
        if sacct is not None:
            return demand_from_sacct(text, str(path))
        if usage is not None:
            return demand_of_usage(read_usage(text, str(path)), str(path))
        return demand_from_csv(text, str(path), hours_each)


def _prices(
    machine: "Owned", gpus_per_machine: int, months: int, rent_usd: float
) -> "HybridPrices":
    """One machine's cost, split into what it costs idle and what its use adds, for one GPU and hour."""
    from dataclasses import replace

    from gpuyard.economics.billing import HOURS_PER_MONTH
    from gpuyard.economics.hybrid import HybridPrices
    from gpuyard.economics.ownership import owned_usd

    gpu_hours = gpus_per_machine * months * HOURS_PER_MONTH
    idle, busy = (
        float(owned_usd(replace(machine, utilisation=used), months / 12)) / gpu_hours
        for used in (0.0, 1.0)
    )
    return HybridPrices(owned_usd=idle, rented_usd=rent_usd, running_usd=busy - idle)


def _mix(
    demand: "Demand", prices: "HybridPrices", gpus_per_machine: int, reserved: str
) -> "CapacityMix":
    from gpuyard.economics.billing import HOURS_PER_YEAR, rent_price
    from gpuyard.economics.capacity_mix import CapacityTier, best_mix

    price = rent_price(reserved)
    held = price.usd_per_year / HOURS_PER_YEAR if price.usd_per_year else price.usd_per_hour
    tiers = (
        CapacityTier("owned", prices.owned_usd, prices.running_usd, gpus_each=gpus_per_machine),
        CapacityTier("reserved", held),
    )
    return best_mix(demand, tiers, prices.rented_usd)
