"""Find how many GPUs to own for a demand, with the rest rented."""

import datetime
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from gpuyard import units
from gpuyard.api.cost import (
    choose_price_date,
    create_costs,
    create_owned,
    describe_electricity,
    parse_months,
)
from gpuyard.api.inputs import read_quantity
from gpuyard.api.result import Result, Row
from gpuyard.errors import UnknownName, UserMistake

if TYPE_CHECKING:
    from gpuyard.choices import Load
    from gpuyard.economics.capacity_mix import CapacityMix
    from gpuyard.economics.demand import Demand
    from gpuyard.economics.hybrid import HybridPrices
    from gpuyard.economics.ownership import OwnedHardware

_HORIZON_MONTHS = 36


def hybrid(
    *,
    rent: str,
    buy: str | float,
    load: "Load | None" = None,
    gpus: float = 8.0,
    base_share: str | float = 0.1,
    busy_share: str | float = 0.05,
    demand: str | Path | None = None,
    sacct: str | Path | None = None,
    usage: str | Path | None = None,
    row_period: str | float | None = None,
    gpus_per_node: int = 1,
    horizon: str | int = _HORIZON_MONTHS,
    reserved: str | None = None,
    error: str | float = 0.3,
    price_date: datetime.date | None = None,
    chart: bool = False,
    **owning: Any,
) -> Result[Row]:
    """Find how many GPUs to own for a demand, with the rest rented, and the cost of an error.

    The demand is a load like "working-hours", a CSV file, the output of sacct, or that of `gpuyard usage --json`. Further
    keywords are the running costs of a machine, as in `gy.cost`.
    """
    if sum(source is not None for source in (demand, sacct, usage, load)) != 1:
        raise UserMistake("give exactly one of --demand, --sacct, --usage, and --load")
    from gpuyard.choices import Load
    from gpuyard.economics.billing import parse_hourly_rent
    from gpuyard.economics.demand import demand_from_load
    from gpuyard.economics.hybrid import best_hybrid
    from gpuyard.report.answers.cost.hybrid import hybrid_answer

    if load is not None:
        if load not in get_args(Load):
            raise UnknownName("load", load, get_args(Load))
        gpu_demand = demand_from_load(
            load,
            gpus,
            base_share=read_quantity(base_share, units.parse_share),
            busy_share=read_quantity(busy_share, units.parse_share),
        )
    else:
        gpu_demand = _read_demand(demand, sacct, usage, row_period)
    rented = parse_hourly_rent(
        rent, "--rent must be the price of one GPU by the hour; for a yearly price use --reserved"
    )
    costs = create_costs(owning)
    prices = _price_gpu_hour(
        create_owned(read_quantity(buy, units.parse_usd), costs),
        gpus_per_node,
        round(read_quantity(horizon, parse_months)),
        rented.usd_per_hour,
    )
    answer = hybrid_answer(
        gpu_demand,
        prices,
        best_hybrid(
            gpu_demand,
            prices,
            gpus_per_machine=gpus_per_node,
            error=read_quantity(error, units.parse_share),
        ),
        None if reserved is None else _find_mix(gpu_demand, prices, gpus_per_node, reserved),
        (rented.date or choose_price_date(price_date)).isoformat(),
        electricity=describe_electricity(costs),
        with_chart=chart,
    )
    return Result(answer)


def _read_demand(
    table: str | Path | None,
    sacct: str | Path | None,
    usage: str | Path | None,
    row_period: str | float | None,
) -> "Demand":
    from gpuyard.economics.demand import demand_from_csv, demand_from_sacct
    from gpuyard.economics.usage import demand_from_usage, read_usage
    from gpuyard.files import read_text

    path = Path(table or sacct or usage or "")
    text = read_text(path)
    if sacct is not None:
        return demand_from_sacct(text, str(path))
    if usage is not None:
        return demand_from_usage(read_usage(text, str(path)), str(path))
    seconds = None if row_period is None else read_quantity(row_period, units.parse_seconds)
    return demand_from_csv(text, str(path), None if seconds is None else seconds / 3600)


def _price_gpu_hour(
    machine: "OwnedHardware", gpus_per_node: int, months: int, rent_usd: float
) -> "HybridPrices":
    """Split a machine's cost per GPU and hour into the idle cost and the extra cost of use."""
    from gpuyard.economics.billing import HOURS_PER_MONTH
    from gpuyard.economics.hybrid import HybridPrices
    from gpuyard.economics.ownership import owned_usd

    gpu_hours = gpus_per_node * months * HOURS_PER_MONTH
    idle, busy = (
        float(owned_usd(replace(machine, utilization=used), months / 12)) / gpu_hours
        for used in (0.0, 1.0)
    )
    return HybridPrices(owned_usd=idle, rented_usd=rent_usd, running_usd=busy - idle)


def _find_mix(
    demand: "Demand", prices: "HybridPrices", gpus_per_node: int, reserved: str
) -> "CapacityMix":
    from gpuyard.economics.billing import HOURS_PER_YEAR, parse_rent_price
    from gpuyard.economics.capacity_mix import CapacityTier, best_mix

    price = parse_rent_price(reserved)
    reserved_usd = price.usd_per_year / HOURS_PER_YEAR if price.usd_per_year else price.usd_per_hour
    tiers = (
        CapacityTier("owned", prices.owned_usd, prices.running_usd, gpus_per_machine=gpus_per_node),
        CapacityTier("reserved", reserved_usd),
    )
    return best_mix(demand, tiers, prices.rented_usd)
