"""`gpuyard cost`: compare renting with buying."""

from enum import StrEnum
from typing import Annotated

import typer

from gpuyard.api.cost import parse_months
from gpuyard.cli.cost.compare import compare
from gpuyard.cli.cost.growth import growth
from gpuyard.cli.cost.hybrid import hybrid
from gpuyard.cli.cost.invoice import invoice
from gpuyard.cli.cost.options import (
    DiscountRateOption,
    OwningOptions,
    PriceDateOption,
    expand_option_groups,
    quantity_option,
    share_option,
)
from gpuyard.cli.output import JsonOption, PageOption, show
from gpuyard.errors import UserMistake


class UnusedTerm(StrEnum):
    """Treatment of the rest of a term after the horizon."""

    PAY = "pay"
    RESELL = "resell"


app = typer.Typer(invoke_without_command=True)
app.command()(compare)
app.command()(hybrid)
app.command()(growth)
app.command()(invoice)


@app.callback()
@expand_option_groups
def cost(
    context: typer.Context,
    *,
    rent: Annotated[
        str | None,
        typer.Option(metavar="PRICE", help="Rent: '$1.50/h', '$160308/year', or aws/p4d.24xlarge."),
    ] = None,
    buy: Annotated[
        str | None,
        typer.Option(
            metavar="PRICE",
            help="Purchase price: '$8000', '$7000..$9000', or server-sxm5/8x-h100-sxm5-80gb.",
        ),
    ] = None,
    hours_per_year: Annotated[
        float | None, typer.Option(help="Hours of use per year (default: 2000).")
    ] = None,
    utilization: Annotated[
        float | None, share_option("Hours of use as a share of all hours, e.g. '60%'.")
    ] = None,
    speed_lead: Annotated[
        float, share_option("Speed advantage of the bought machine, e.g. '30%'.")
    ] = 0.0,
    horizon: Annotated[
        int | None, quantity_option(parse_months, "TIME", "Planning horizon (default: 3 years).")
    ] = None,
    term: Annotated[
        int, quantity_option(parse_months, "TIME", "Term of a yearly price (default: 1 year).")
    ] = 12,
    rest: Annotated[
        UnusedTerm | None,
        typer.Option(help="Treatment of a term that ends past the horizon."),
    ] = None,
    resale: Annotated[
        float, share_option("Share of its price that a resold rest of a term brings.")
    ] = 0.0,
    discount_rate: DiscountRateOption = 0.0,
    owning: OwningOptions,
    tornado: Annotated[
        bool, typer.Option("--tornado", help="Show which input matters most, one at a time.")
    ] = False,
    monte_carlo: Annotated[
        int | None, typer.Option(help="Number of random draws of all inputs at once.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    swing: Annotated[float, share_option("Error of each input (default: 20%).")] = 0.2,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RANGE", help="Range of one input: rent_usd_per_hour=1.0..1.8; repeatable."
        ),
    ] = None,
    price_date: PriceDateOption = None,
    html: PageOption = None,
    json_output: JsonOption = False,
) -> None:
    """Compare renting with buying, compare offers, and plan owned capacity.

    Without a command, it finds after how many hours of use buying is cheaper than renting. Costs of owning that you
    leave out count as zero.

    Example: gpuyard cost --rent '$1.50/h' --buy '$8000' --hours-per-year 2000
    """
    if context.invoked_subcommand is not None:
        return
    if rent is None or buy is None:
        raise UserMistake(
            "give --rent and --buy, e.g. gpuyard cost --rent '$1.50/h' --buy '$8000'; "
            "or use a command: compare, hybrid, growth, invoice"
        )
    from gpuyard.api.cost import cost as compare_costs

    result = compare_costs(
        rent,
        buy,
        hours_per_year=hours_per_year,
        utilization=utilization,
        speed_lead=speed_lead,
        horizon=horizon,
        term=term,
        rest=rest,
        resale=resale,
        discount_rate=discount_rate,
        tornado=tornado,
        monte_carlo=monte_carlo,
        seed=seed,
        swing=swing,
        vary=vary or (),
        price_date=price_date,
        page=html is not None,
        **vars(owning),
    )
    show(result.answer, json_output=json_output, html=html)
