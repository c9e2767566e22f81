"""`gpuyard cost`: renting against buying, and the questions that follow from it."""

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
    electricity_words,
    given_on,
    months,
    owned_machine,
    quantity,
    share,
    takes_option_groups,
    usd,
)
from gpuyard.cli.output import JsonOption, PageOption, show
from gpuyard.errors import UserMistake, describe_unknown

if TYPE_CHECKING:
    from gpuyard.economics.billing import RentPrice
    from gpuyard.economics.rent_or_own import RentOrOwn

_HORIZON_MONTHS = 36
_HOURS_PER_YEAR = 2000.0

app = typer.Typer(invoke_without_command=True)
app.command()(compare)
app.command()(hybrid)
app.command()(growth)
app.command()(invoice)


@app.callback()
@takes_option_groups
def cost(
    context: typer.Context,
    *,
    rent: Annotated[
        str | None,
        typer.Option(
            metavar="PRICE", help="Renting: '$1.50/h', '$160308/year' or aws/p4d.24xlarge."
        ),
    ] = None,
    buy: Annotated[float | None, usd("Price of buying, e.g. '$8000'.")] = None,
    hours_per_year: Annotated[
        float | None, typer.Option(help="Hours of use per year (default: 2000).")
    ] = None,
    utilisation: Annotated[
        float | None, share("The same as a share of all hours, e.g. '60 %'.")
    ] = None,
    speed_lead: Annotated[
        float, share("How much faster the bought machine is, e.g. '30 %'.")
    ] = 0.0,
    horizon: Annotated[
        int | None, quantity(months, "TIME", "Planning horizon (default: 3 years).")
    ] = None,
    term: Annotated[
        int, quantity(months, "TIME", "Term of a price by the year (default: 1 year).")
    ] = 12,
    rest: Annotated[
        str | None,
        typer.Option(metavar="pay|resell", help="What becomes of a term past the horizon."),
    ] = None,
    resale: Annotated[float, share("What a resold rest of a term brings.")] = 0.0,
    discount_rate: DiscountRateOption = 0.0,
    owning: OwningOptions,
    tornado: Annotated[
        bool, typer.Option("--tornado", help="Show which input matters most, one at a time.")
    ] = False,
    monte_carlo: Annotated[
        int | None, typer.Option(help="Draw all inputs at once, this many times.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    swing: Annotated[float, share("How far off each input may be (default: 20 %).")] = 0.2,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RANGE", help="Own range, e.g. rent_usd_per_hour=1.0..1.8; repeatable."
        ),
    ] = None,
    price_date: PriceDateOption = None,
    html: PageOption = None,
    json_output: JsonOption = False,
) -> None:
    """Renting against buying, offers side by side, what to own of a demand, when to buy more.

    Without a command: after how many hours of use is buying cheaper than renting? What you leave out of
    the costs of owning counts as nothing.

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
    if rest not in (None, "pay", "resell"):
        raise UserMistake(describe_unknown("value of --rest", rest, ["pay", "resell"]))
    from gpuyard.economics.billing import rent_price
    from gpuyard.economics.rent_or_own import RentOrOwn
    from gpuyard.report.answers.cost.rent_or_own import RentOrOwnQuestion, rent_or_own_answer

    hours = hours_per_year if hours_per_year is not None else _HOURS_PER_YEAR
    if utilisation is not None:
        hours = utilisation * 8766
    price = rent_price(rent)
    detailed = (
        owning != OwningOptions()
        or any((horizon, rest, tornado, vary, monte_carlo is not None))
        or (term, discount_rate) != (12, 0.0)
    )
    whole_months = horizon if horizon is not None else _HORIZON_MONTHS
    case = RentOrOwn(
        owned_machine(buy, owning),
        rent_usd_per_hour=price.usd_per_hour,
        hours_per_year=hours,
        reserved_usd_per_year=price.usd_per_year,
        rest_years=_rest_years(price, whole_months, term, rest) if detailed else 0.0,
        rest_resold=resale if rest == "resell" else 0.0,
        speed_lead=speed_lead,
        discount_per_year=discount_rate,
        months=whole_months,
    )
    question = RentOrOwnQuestion(
        rent=price,
        case=case,
        ranges=_ranges(case, swing, vary or []),
        given_on=given_on(price_date),
        detailed=detailed,
        tornado=tornado or bool(vary),
        draws=monte_carlo,
        seed=seed,
        electricity=electricity_words(owning),
    )
    show(rent_or_own_answer(question), json_output=json_output, html=html)


def _rest_years(price: "RentPrice", horizon: int, term: int, rest: str | None) -> float:
    """Of the last term, after the horizon."""
    from gpuyard.economics.billing import unused_years

    if not price.usd_per_year:
        return 0.0
    return float(unused_years(horizon / 12, term / 12, rest))  # type: ignore[arg-type]


def _ranges(case: "RentOrOwn", swing: float, vary: list[str]) -> dict[str, tuple[float, float]]:
    from gpuyard.economics.sensitivity import ranges_around

    found = ranges_around(case, swing)
    known = case.inputs()
    for text in vary:
        name, _, span = text.partition("=")
        low, dots, high = span.partition("..")
        if name not in known:
            raise UserMistake(describe_unknown("input", name, known))
        try:
            found[name] = (float(low), float(high))
        except ValueError:
            dots = ""
        if not dots:
            raise UserMistake(f"{text!r} is not a range; write it like {name}=1.0..1.8")
    return found
