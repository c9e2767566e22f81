"""`gpuyard cost`: compare renting with buying."""

from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.cost.compare import compare
from gpuyard.cli.cost.growth import growth
from gpuyard.cli.cost.hybrid import hybrid
from gpuyard.cli.cost.invoice import invoice
from gpuyard.cli.cost.options import (
    DiscountRateOption,
    OwningOptions,
    PriceDateOption,
    choose_price_date,
    create_owned,
    describe_electricity,
    expand_option_groups,
    parse_months,
    quantity_option,
    share_option,
)
from gpuyard.cli.output import JsonOption, PageOption, show
from gpuyard.errors import UserMistake, describe_unknown

if TYPE_CHECKING:
    from gpuyard.economics.billing import RentPrice
    from gpuyard.economics.purchase import Purchase
    from gpuyard.economics.rent_or_own import RentOrOwn

_HORIZON_MONTHS = 36
_HOURS_PER_YEAR = 2000.0

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
        str | None,
        typer.Option(metavar="pay|resell", help="Treatment of a term that ends past the horizon."),
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
    if hours_per_year is not None and utilization is not None:
        raise UserMistake("give --hours-per-year or --utilization, not both")
    if rest not in (None, "pay", "resell"):
        raise UserMistake(describe_unknown("value of --rest", rest, ["pay", "resell"]))
    from gpuyard.economics.billing import parse_rent_price
    from gpuyard.economics.purchase import parse_purchase
    from gpuyard.economics.rent_or_own import RentOrOwn
    from gpuyard.report.answers.cost.rent_or_own import RentOrOwnQuestion, rent_or_own_answer

    hours = hours_per_year if hours_per_year is not None else _HOURS_PER_YEAR
    if utilization is not None:
        hours = utilization * 8766
    price, purchase = parse_rent_price(rent), parse_purchase(buy)
    detailed = (
        owning != OwningOptions()
        or any((horizon, rest, tornado, vary, monte_carlo is not None))
        or (term, discount_rate) != (12, 0.0)
    )
    whole_months = horizon if horizon is not None else _HORIZON_MONTHS
    case = RentOrOwn(
        create_owned(purchase.usd, owning),
        rent_usd_per_hour=price.usd_per_hour,
        hours_per_year=hours,
        reserved_usd_per_year=price.usd_per_year,
        rest_years=_unused_term_years(price, whole_months, term, rest) if detailed else 0.0,
        rest_resold=resale if rest == "resell" else 0.0,
        speed_lead=speed_lead,
        discount_per_year=discount_rate,
        months=whole_months,
    )
    question = RentOrOwnQuestion(
        rent=price,
        purchase=purchase,
        case=case,
        ranges=_parse_ranges(case, purchase, swing, vary or []),
        given_on=choose_price_date(price_date),
        detailed=detailed,
        tornado=tornado or bool(vary),
        draws=monte_carlo,
        seed=seed,
        electricity=describe_electricity(owning),
    )
    answer = rent_or_own_answer(question, page=html is not None)
    show(answer, json_output=json_output, html=html)


def _unused_term_years(price: "RentPrice", horizon: int, term: int, rest: str | None) -> float:
    """Return the years of the last term after the horizon."""
    from gpuyard.economics.billing import unused_years

    if not price.usd_per_year:
        return 0.0
    return float(unused_years(horizon / 12, term / 12, rest))  # type: ignore[arg-type]


def _parse_ranges(
    case: "RentOrOwn", purchase: "Purchase", swing: float, vary: list[str]
) -> dict[str, tuple[float, float]]:
    """Return the range of each input, with those of --buy and --vary in place of the default ones."""
    from gpuyard.economics.sensitivity import ranges_around

    ranges = ranges_around(case, swing)
    if purchase.is_range:
        ranges["hardware_usd"] = (purchase.usd_low, purchase.usd_high)
    inputs = case.inputs()
    for text in vary:
        name, _, span = text.partition("=")
        low, dots, high = span.partition("..")
        if name not in inputs:
            raise UserMistake(describe_unknown("input", name, inputs))
        try:
            ranges[name] = (float(low), float(high))
        except ValueError:
            dots = ""
        if not dots:
            raise UserMistake(f"{text!r} is not a range; write it like {name}=1.0..1.8")
    return ranges
