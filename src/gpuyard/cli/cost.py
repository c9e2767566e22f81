"""`gpuyard cost`: renting against buying."""

from typing import Annotated

import typer

from gpuyard.cli.options import JsonOption, print_json, print_table


def cost(
    *,
    rent: Annotated[str, typer.Option(help="Price of renting, e.g. '$1.50/h'.")],
    buy: Annotated[str, typer.Option(help="Price of buying, e.g. '$8000'.")],
    hours_per_year: Annotated[float, typer.Option(help="Hours of use a year.")] = 2000.0,
    speed_lead: Annotated[
        str, typer.Option(help="How much faster the bought machine is, e.g. '30 %'.")
    ] = "0 %",
    json_output: JsonOption = False,
) -> None:
    """Say after how many hours of use buying is cheaper than renting.

    Example: gpuyard cost --rent '$1.50/h' --buy '$8000' --hours-per-year 2000
    """
    from gpuyard import units
    from gpuyard.economics import break_even

    result = break_even(
        rent_usd_per_hour=units.parse_usd_per_hour(rent),
        buy_usd=units.parse_usd(buy),
        hours_per_year=hours_per_year,
        speed_lead=units.parse_share(speed_lead),
    )
    if json_output:
        print_json(
            {
                "rent_usd_per_hour": result.rent_usd_per_hour,
                "buy_usd": result.buy_usd,
                "speed_lead": result.speed_lead,
                "comparable_buy_usd": result.comparable_buy_usd,
                "hours_per_year": result.hours_per_year,
                "break_even_hours": result.break_even_hours,
                "break_even_years": result.break_even_years,
            }
        )
        return
    print_table(
        f"Renting at {units.format_usd(result.rent_usd_per_hour)}/h against buying",
        ["", "buy", "break-even", f"at {hours_per_year:,.0f} h a year"],
        [
            [
                "as bought" if not speed_lead_given else "discounted by its speed lead",
                units.format_usd(usd),
                f"{hours:,.0f} h",
                f"{hours / hours_per_year:.2f} years",
            ]
            for speed_lead_given, usd in _prices(result.buy_usd, result.comparable_buy_usd)
            for hours in [usd / result.rent_usd_per_hour]
        ],
    )


def _prices(buy_usd: float, comparable_buy_usd: float) -> list[tuple[bool, float]]:
    rows = [(False, buy_usd)]
    if comparable_buy_usd != buy_usd:
        rows.append((True, comparable_buy_usd))
    return rows
