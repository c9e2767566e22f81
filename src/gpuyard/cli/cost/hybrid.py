"""`gpuyard cost hybrid`: what to own of a demand, with the rest rented."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuyard.cli.cost.owning import (
    OwningTexts,
    PriceDateOption,
    given_on,
    owned_from,
    read_months,
    read_rent,
    takes_owning,
)
from gpuyard.cli.options import JsonOption, PageOption, console, print_json, print_page, print_table
from gpuyard.errors import UserMistake

if TYPE_CHECKING:
    from gpuyard.economics.capacity_mix import CapacityMix
    from gpuyard.economics.demand import Demand
    from gpuyard.economics.hybrid import Hybrid, HybridPrices


class LoadName(StrEnum):
    """A demand in words."""

    STEADY = "steady"
    WORKING_HOURS = "working-hours"
    SPIKY = "spiky"


@takes_owning(
    "power", "idle_power", "tariff", "pue", "colocation", "support", "staff_hours", "staff", "value_kept"
)  # fmt: skip
def hybrid(
    *,
    demand: Annotated[
        Path | None, typer.Option(help="A CSV with a column gpus or gpu_hours, and time.")
    ] = None,
    sacct: Annotated[
        Path | None, typer.Option(help="Output of sacct -P -X -o JobID,Start,End,AllocTRES.")
    ] = None,
    load: Annotated[LoadName | None, typer.Option(help="A demand in words.")] = None,
    gpus: Annotated[float, typer.Option(min=0, help="With --load: GPUs when busy.")] = 8.0,
    base_share: Annotated[
        str, typer.Option(help="With --load: share of them at other times.")
    ] = "10 %",
    busy_share: Annotated[
        str, typer.Option(help="With --load spiky: share of the year that is busy.")
    ] = "5 %",
    every: Annotated[
        str | None, typer.Option(help="With --demand: how long a row is, e.g. '1 hour'.")
    ] = None,
    rent: Annotated[str, typer.Option(help="Renting one GPU, e.g. '$1.50/h'.")],
    buy: Annotated[str, typer.Option(help="Buying one machine, e.g. '$109008'.")],
    gpus_per_machine: Annotated[int, typer.Option(min=1, help="GPUs of that machine.")] = 1,
    horizon: Annotated[str, typer.Option(help="How long a machine is used.")] = "3 years",
    reserved: Annotated[
        str | None, typer.Option(help="Also reserve GPUs at this price, each, e.g. '$5000/year'.")
    ] = None,
    error: Annotated[
        str, typer.Option(help="How far the demand may be off, to both sides.")
    ] = "30 %",
    owning: OwningTexts,
    price_date: PriceDateOption = None,
    html: PageOption = None,
    json_output: JsonOption = False,
) -> None:
    """Find how many GPUs to own for a demand, with the rest rented, and what an error costs.

    Example: gpuyard cost hybrid --load working-hours --gpus 16 --rent '$1.50/h' --buy '$8000'
    """
    from gpuyard import units
    from gpuyard.economics.hybrid import best_hybrid

    if sum(source is not None for source in (demand, sacct, load)) != 1:
        raise UserMistake("give one of --demand, --sacct and --load")
    if load is not None:
        wanted = _described(load, gpus, base_share, busy_share)
    else:
        wanted = _read(demand, sacct, every)
    rented = read_rent(rent)
    if rented.usd_per_year:
        raise UserMistake("--rent is the price of one GPU by the hour; a yearly one is --reserved")
    prices = _prices(buy, owning, gpus_per_machine, read_months(horizon), rented.usd_per_hour)
    found = best_hybrid(
        wanted, prices, gpus_per_machine=gpus_per_machine, error=units.parse_share(error)
    )
    mix = _mix(wanted, prices, gpus_per_machine, reserved)
    day = (rented.date or given_on(price_date)).isoformat()
    if html is not None:
        _write_page(wanted, found, day, html)
    if json_output:
        print_json(_document(wanted, prices, found, mix, day))
        return
    _show(wanted, prices, found, mix)
    console().print(f"Prices of {day}.", highlight=False)
    print_page(html)


def _described(load: LoadName, gpus: float, base_share: str, busy_share: str) -> "Demand":
    from gpuyard import units
    from gpuyard.economics.demand import described_demand

    base, busy = units.parse_share(base_share), units.parse_share(busy_share)
    return described_demand(load.value, gpus, base_share=base, busy_share=busy)


def _read(table: Path | None, sacct: Path | None, every: str | None) -> "Demand":
    from gpuyard import units
    from gpuyard.economics.demand import demand_from_csv
    from gpuyard.economics.slurm_demand import demand_from_sacct

    path = table or sacct
    try:
        text = path.read_text(encoding="utf-8-sig") if path else ""
    except FileNotFoundError:
        raise UserMistake(f"{path}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as unreadable:
        raise UserMistake(f"{path}: can't be read as text ({unreadable})") from None
    hours = None if every is None else units.parse_seconds(every) / 3600
    with console(stderr=True).status(f"reading {path}"):
        if sacct is not None:
            return demand_from_sacct(text, str(path))
        return demand_from_csv(text, str(path), hours)


def _prices(
    buy: str, texts: OwningTexts, gpus_per_machine: int, months: int, rent_usd: float
) -> "HybridPrices":
    """One machine's cost, split into what it costs idle and what its use adds, for one GPU and hour."""
    from dataclasses import replace

    from gpuyard.economics.amounts import HOURS_PER_MONTH
    from gpuyard.economics.hybrid import HybridPrices
    from gpuyard.economics.ownership import owned_usd

    machine = owned_from(buy, texts)
    gpu_hours = gpus_per_machine * months * HOURS_PER_MONTH
    idle, busy = (
        float(owned_usd(replace(machine, utilisation=share), months / 12)) / gpu_hours
        for share in (0.0, 1.0)
    )
    return HybridPrices(owned_usd=idle, rented_usd=rent_usd, running_usd=busy - idle)


def _mix(
    demand: "Demand", prices: "HybridPrices", gpus_per_machine: int, reserved: str | None
) -> "CapacityMix | None":
    if reserved is None:
        return None
    from gpuyard.economics.amounts import HOURS_PER_YEAR
    from gpuyard.economics.capacity_mix import Tier, best_mix

    price = read_rent(reserved)
    held = price.usd_per_year / HOURS_PER_YEAR if price.usd_per_year else price.usd_per_hour
    tiers = (
        Tier("owned", prices.owned_usd, prices.running_usd, gpus_each=gpus_per_machine),
        Tier("reserved", held),
    )
    return best_mix(demand, tiers, prices.rented_usd)


def _show(
    demand: "Demand", prices: "HybridPrices", found: "Hybrid", mix: "CapacityMix | None"
) -> None:
    from gpuyard import units

    columns, rows = _mix_rows(found)
    title = f"{demand.source}: {demand.gpus.size:,} periods, peak {demand.gpus.max():g} GPUs"
    print_table(title, columns, rows)
    title, columns, rows = _wrong_rows(found)
    print_table(title, columns, rows)
    if mix is not None:
        print_table(
            "With reserved GPUs too" + ("" if mix.exact else " (levels of demand merged)"),
            ["", "GPUs", "of the work", "a year"],
            [
                [
                    t.name,
                    f"{t.gpus:g}",
                    units.format_share(t.share),
                    units.format_usd(t.usd_per_year),
                ]
                for t in mix.tiers
            ]
            + [["all", "", "", units.format_usd(mix.usd_per_year)]],
        )
    console().print(
        f"Owning a GPU costs {units.format_usd(prices.owned_usd)}/h, used or not, and "
        f"{units.format_usd(prices.running_usd)}/h more in use; renting one "
        f"{units.format_usd(prices.rented_usd)}/h. So it pays to own what is wanted in more than "
        f"{100 * (1 - found.quantile):.0f} % of all hours.",
        highlight=False,
        soft_wrap=True,
    )


def _mix_rows(found: "Hybrid") -> tuple[list[str], list[list[str]]]:
    from gpuyard import units

    rows = [
        [
            words,
            f"{mix.own_gpus:g}",
            units.format_usd(mix.usd_per_year),
            units.format_share(mix.owned_share),
            units.format_share(mix.utilisation),
        ]
        for words, mix in (
            ("best", found.best),
            ("rent all", found.rent_all),
            ("own all", found.own_all),
        )
    ]
    return ["", "own GPUs", "a year", "work on owned", "owned in use"], rows


def _wrong_rows(found: "Hybrid") -> tuple[str, list[str], list[list[str]]]:
    from gpuyard import units

    rows = [
        [
            f"{100 * (one.demand_factor - 1):+.0f} %",
            units.format_usd(one.usd_per_year),
            f"{one.best_own_gpus:g}",
            units.format_usd(one.regret_usd_per_year),
        ]
        for one in found.if_wrong
    ]
    title = f"If the demand is other than thought, with {found.best.own_gpus:g} GPUs owned"
    return title, ["demand", "a year", "better to own", "lost a year"], rows


def _document(
    demand: "Demand",
    prices: "HybridPrices",
    found: "Hybrid",
    mix: "CapacityMix | None",
    day: str,
) -> dict[str, Any]:
    from dataclasses import asdict

    document = asdict(found)
    for one, wrong in zip(document["if_wrong"], found.if_wrong, strict=True):
        one["regret_usd_per_year"] = wrong.regret_usd_per_year
    return {
        "demand": {
            "source": demand.source,
            "periods": int(demand.gpus.size),
            "hours_each": demand.hours_each,
            "gpu_hours": demand.gpu_hours,
            "peak_gpus": float(demand.gpus.max()),
        },
        "prices_usd_per_gpu_hour": asdict(prices),
        "price_date": day,
        **document,
        "with_reserved": None if mix is None else asdict(mix),
    }


def _write_page(demand: "Demand", found: "Hybrid", day: str, path: Path) -> None:
    from gpuyard import units
    from gpuyard.report.cost_page import CostPage, NumberTable, hybrid_charts, write_cost_page

    columns, rows = _mix_rows(found)
    own = found.best.own_gpus
    title = f"Own {own:g} GPUs, rent the rest" if own else "Rent all"
    if own >= demand.gpus.max():
        title = f"Own {own:g} GPUs, rent none"
    page = CostPage(
        title=title,
        prices=f"prices of {day}",
        sentences=[
            f"That costs {units.format_usd(found.best.usd_per_year)} a year; renting all "
            f"{units.format_usd(found.rent_all.usd_per_year)}, owning enough for the peak "
            f"{units.format_usd(found.own_all.usd_per_year)}."
        ],
        charts=hybrid_charts(demand, found),
        tables=[NumberTable("What a year costs", columns, rows), NumberTable(*_wrong_rows(found))],
    )
    write_cost_page(page, path)
