"""`gpuyard cost`: renting against buying, and the questions that follow from it."""

from typing import Annotated

import typer

from gpuyard.cli.cost.compare import compare
from gpuyard.cli.cost.growth import growth
from gpuyard.cli.cost.hybrid import hybrid
from gpuyard.cli.cost.invoice import invoice
from gpuyard.cli.cost.owning import (
    OwningTexts,
    PriceDateOption,
    given_on,
    owned_from,
    read_months,
    read_rent,
    takes_owning,
)
from gpuyard.cli.options import JsonOption, PageOption
from gpuyard.errors import UserMistake

app = typer.Typer(
    help="Renting against buying, offers side by side, what to own of a demand, when to buy more.",
    invoke_without_command=True,
)
app.command()(compare)
app.command()(hybrid)
app.command()(growth)
app.command()(invoice)


@app.callback()
@takes_owning()
def cost(
    context: typer.Context,
    *,
    rent: Annotated[
        str | None,
        typer.Option(help="Renting: '$1.50/h', '$160308/year', or an instance: aws/p4d.24xlarge."),
    ] = None,
    buy: Annotated[str | None, typer.Option(help="Price of buying, e.g. '$8000'.")] = None,
    hours_per_year: Annotated[
        float | None, typer.Option(help="Hours of use a year; 2000 unless said.")
    ] = None,
    utilisation: Annotated[
        str | None, typer.Option(help="The same as a share of all hours, e.g. '60 %'.")
    ] = None,
    speed_lead: Annotated[
        str, typer.Option(help="How much faster the bought machine is, e.g. '30 %'.")
    ] = "0 %",
    horizon: Annotated[str | None, typer.Option(help="How long it is needed; 3 years.")] = None,
    term: Annotated[
        str, typer.Option(help="How long a price by the year is signed for, e.g. '3 years'.")
    ] = "1 year",
    rest: Annotated[
        str | None, typer.Option(help="A term past the horizon: 'pay' its rest, or 'resell' it.")
    ] = None,
    resale: Annotated[str, typer.Option(help="What a resold rest brings, as a share.")] = "0 %",
    discount_rate: Annotated[
        str, typer.Option(help="What money is worth a year, for the present value.")
    ] = "0 %",
    owning: OwningTexts,
    tornado: Annotated[
        bool, typer.Option("--tornado", help="Say which input decides, one at a time.")
    ] = False,
    monte_carlo: Annotated[
        int | None, typer.Option(help="Draw all inputs at once so many times.", metavar="N")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the draws.")] = 0,
    swing: Annotated[
        str, typer.Option(help="How far each input may be off, to both sides.")
    ] = "20 %",
    vary: Annotated[
        list[str] | None,
        typer.Option(help="A range of its own, e.g. rent_usd_per_hour=1.0..1.8; may be repeated."),
    ] = None,
    price_date: PriceDateOption = None,
    html: PageOption = None,
    json_output: JsonOption = False,
) -> None:
    """Say after how many hours of use buying is cheaper than renting.

    Example: gpuyard cost --rent '$1.50/h' --buy '$8000' --hours-per-year 2000
    """
    if context.invoked_subcommand is not None:
        return
    if rent is None or buy is None:
        raise UserMistake(
            "give --rent and --buy, e.g. gpuyard cost --rent '$1.50/h' --buy '$8000'; "
            "or one of: compare, hybrid, growth, invoice"
        )
    if hours_per_year is not None and utilisation is not None:
        raise UserMistake("give --hours-per-year or --utilisation, not both")
    from gpuyard import units
    from gpuyard.cli.cost.answer import answer
    from gpuyard.cli.cost.question import Asked

    hours = hours_per_year if hours_per_year is not None else 2000.0
    if utilisation is not None:
        hours = units.parse_share(utilisation) * 8766
    priced = read_rent(rent)
    answer(
        Asked(
            rent=priced,
            owned=owned_from(buy, owning),
            hours_per_year=hours,
            speed_lead=units.parse_share(speed_lead),
            months=36 if horizon is None else read_months(horizon),
            term_months=read_months(term),
            rest=rest,
            resale=units.parse_share(resale),
            discount_per_year=units.parse_share(discount_rate),
            detailed=owning != OwningTexts()
            or any((horizon, rest, tornado, vary, monte_carlo is not None))
            or (term, discount_rate) != ("1 year", "0 %"),
            tornado=tornado or bool(vary),
            draws=monte_carlo,
            seed=seed,
            swing=units.parse_share(swing),
            vary=tuple(vary or ()),
            given_on=given_on(price_date),
        ),
        html,
        json_output=json_output,
    )
