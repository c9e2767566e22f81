"""Compare renting with buying: after how many hours of use is buying cheaper?"""

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuyard import units
from gpuyard.api.plotting import Line, Plot
from gpuyard.api.result import Result, Row
from gpuyard.errors import BadQuantity, UserMistake, describe_unknown

if TYPE_CHECKING:
    from gpuyard.economics.billing import RentPrice
    from gpuyard.economics.ownership import OwnedHardware
    from gpuyard.economics.purchase import Purchase
    from gpuyard.economics.rent_or_own import RentOrOwn
    from gpuyard.planner.goodput import InstanceLosses

_YEAR_SECONDS = units.parse_seconds("1 year")
_HORIZON_MONTHS, _TERM_MONTHS = 36, 12
_HOURS_PER_YEAR = 2000.0


class Colocation(NamedTuple):
    """The price of colocation, per rack or per kW."""

    usd_per_year: float = 0.0
    usd_per_kw_month: float = 0.0


NO_COLOCATION = Colocation()


@dataclass(frozen=True)
class RunningCosts:
    """The running costs of a machine, in the units of the command line's options."""

    power: float = 0.0  # watts under load
    idle_power: float = 0.0
    tariff: float = 0.0  # dollars per kWh
    country: str | None = None
    pue: float = 1.0
    colocation: Colocation = NO_COLOCATION
    support: float = 0.0  # share of the hardware price per year
    staff_hours: float = 0.0  # per month
    staff: float = 0.0  # dollars per hour
    value_kept: float = 0.0  # resale value kept per year


@dataclass(frozen=True)
class OwningCosts(RunningCosts):
    """All costs of owning except the hardware."""

    spares: float = 0.0
    installation: float = 0.0
    network_cost: float = 0.0
    gpus: int = 0
    failure: float = 0.0
    financed: float = 0.0
    interest: float = 0.0
    loan: float = 3.0  # years
    depreciation: float = 0.0  # years


def parse_years(text: str) -> float:
    """Parse a duration in years: "18 months" is 1.5."""
    return units.parse_seconds(text, "3 years") / _YEAR_SECONDS


def parse_months(text: str) -> int:
    """Parse a duration in months: "3 years" is 36."""
    return round(12 * parse_years(text))


def parse_colocation(text: str) -> Colocation:
    """Parse "$15000/year" or "$184/kW/month"."""
    for parse, field in (
        (units.parse_usd_per_year, "usd_per_year"),
        (units.parse_usd_per_kw_month, "usd_per_kw_month"),
    ):
        try:
            return Colocation(**{field: parse(text)})
        except BadQuantity:
            continue
    raise UserMistake(
        f"{text!r} is not a colocation price; write it like '$15000/year' or '$184/kW/month'"
    )


_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "power": units.parse_watts,
    "idle_power": units.parse_watts,
    "tariff": units.parse_usd_per_kwh,
    "colocation": parse_colocation,
    "support": units.parse_share,
    "staff": units.parse_usd_per_hour,
    "value_kept": units.parse_share,
    "spares": units.parse_share,
    "installation": units.parse_usd,
    "network_cost": units.parse_usd,
    "failure": units.parse_usd,
    "financed": units.parse_share,
    "interest": units.parse_share,
    "loan": parse_years,
    "depreciation": parse_years,
}


def cost(
    rent: str | float,
    buy: str | float,
    *,
    hours_per_year: float | None = None,
    utilization: str | float | None = None,
    speed_lead: str | float = 0.0,
    horizon: str | int | None = None,
    term: str | int = _TERM_MONTHS,
    rest: str | None = None,
    resale: str | float = 0.0,
    discount_rate: str | float = 0.0,
    tornado: bool = False,
    monte_carlo: int | None = None,
    seed: int = 0,
    swing: str | float = 0.2,
    vary: Sequence[str] = (),
    price_date: datetime.date | None = None,
    page: bool = False,
    **owning: Any,
) -> Result[Row]:
    """Find after how many hours of use buying is cheaper than renting.

    `rent` is a price like "$1.50/h", dollars per hour, or an instance like "aws/p4d.24xlarge". Further keywords are the costs of owning with
    their units, as in `power="3.5 kW", country="DE"`; those left out count as zero. `horizon` and `term` are text, or months.
    """
    from gpuyard.economics.billing import parse_rent_price
    from gpuyard.economics.purchase import parse_purchase
    from gpuyard.economics.rent_or_own import RentOrOwn
    from gpuyard.report.answers.cost.rent_or_own import RentOrOwnQuestion, rent_or_own_answer

    if hours_per_year is not None and utilization is not None:
        raise UserMistake("give --hours-per-year or --utilization, not both")
    if rest not in (None, "pay", "resell"):
        raise UserMistake(describe_unknown("value of --rest", rest, ["pay", "resell"]))
    hours = hours_per_year if hours_per_year is not None else _HOURS_PER_YEAR
    if utilization is not None:
        hours = units.parse_share(utilization) * 8766
    price = parse_rent_price(rent if isinstance(rent, str) else f"${rent}/h")
    costs = create_costs(owning)
    purchase = parse_purchase(buy if isinstance(buy, str) else f"${buy}")
    term_months = parse_months(term) if isinstance(term, str) else term
    discount = units.parse_share(discount_rate)
    detailed = (
        costs != OwningCosts()
        or any((horizon, rest, tornado, vary, monte_carlo is not None))
        or (term_months, discount) != (_TERM_MONTHS, 0.0)
    )
    months = parse_months(horizon) if isinstance(horizon, str) else horizon or _HORIZON_MONTHS
    case = RentOrOwn(
        create_owned(purchase.usd, costs),
        rent_usd_per_hour=price.usd_per_hour,
        hours_per_year=hours,
        reserved_usd_per_year=price.usd_per_year,
        rest_years=_unused_term_years(price, months, term_months, rest) if detailed else 0.0,
        rest_resold=units.parse_share(resale) if rest == "resell" else 0.0,
        speed_lead=units.parse_share(speed_lead),
        discount_per_year=discount,
        months=months,
    )
    question = RentOrOwnQuestion(
        rent=price,
        purchase=purchase,
        case=case,
        ranges=_parse_ranges(case, purchase, units.parse_share(swing), vary),
        given_on=choose_price_date(price_date),
        detailed=detailed,
        tornado=tornado or bool(vary),
        draws=monte_carlo,
        seed=seed,
        electricity=describe_electricity(costs),
        losses=_estimate_losses(price.text),
    )
    return Result(
        rent_or_own_answer(question, page=page), plot=lambda: _create_plot(case, price.text)
    )


def _estimate_losses(rent: str) -> "InstanceLosses | None":
    """Return what interruptions take from a job on all GPUs of a catalog instance; None for any other price."""
    from gpuyard.catalog import gpus, prices
    from gpuyard.planner.goodput import estimate_instance_losses

    name = rent.partition("@")[0]
    if name not in prices() or (price := prices().get(name)).gpu is None:
        return None
    return estimate_instance_losses(price, gpus().get(price.gpu))


def create_costs(owning: Mapping[str, Any]) -> OwningCosts:
    """Read the costs of owning, which may have units."""
    names = [field.name for field in fields(OwningCosts)]
    for name in owning:
        if name not in names:
            raise TypeError(describe_unknown("cost of owning", name, names))
    return OwningCosts(
        **{
            name: _PARSERS[name](value) if isinstance(value, str) and name in _PARSERS else value
            for name, value in owning.items()
        }
    )


def _create_plot(case: "RentOrOwn", rent: str) -> Plot:
    """Plot what renting and buying cost until each year of the horizon."""
    import numpy as np

    from gpuyard.economics.rent_or_own import paid_by_month, rented_cash_by_month

    rented, owned = (
        [float(usd) for usd in np.cumsum(by_month(case).ravel())]
        for by_month in (rented_cash_by_month, paid_by_month)
    )
    lines = [
        Line(name, [month / 12 for month in range(len(paid))], paid)
        for name, paid in ((f"rent at {rent}", rented), ("buy", owned))
    ]
    return Plot("Rent or buy", "years", "dollars", lines)


def choose_price_date(price_date: datetime.date | None) -> datetime.date:
    """Return the date of prices that a user gives, today by default."""
    return price_date or datetime.datetime.now(datetime.UTC).date()


def _unused_term_years(price: "RentPrice", horizon: int, term: int, rest: str | None) -> float:
    """Return the years of the last term after the horizon."""
    from gpuyard.economics.billing import unused_years

    if not price.usd_per_year:
        return 0.0
    return float(unused_years(horizon / 12, term / 12, rest))  # type: ignore[arg-type]


def _parse_ranges(
    case: "RentOrOwn", purchase: "Purchase", swing: float, vary: Sequence[str]
) -> dict[str, tuple[float, float]]:
    """Return the range of each input, with those of the purchase and of `vary` in place of the default ones."""
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


def _price_electricity(costs: RunningCosts) -> tuple[float, str]:
    """Return the electricity price from the tariff or the country, and a sentence about it."""
    from gpuyard.catalog.electricity import price_electricity

    if costs.country is not None and costs.tariff:
        raise UserMistake("give --tariff or --country, not both")
    option_names = ("--power", "--tariff or --country")
    return price_electricity(costs.power, costs.tariff, costs.country, option_names)


def describe_electricity(costs: RunningCosts) -> str:
    """Describe the electricity price in use, or that electricity is not counted."""
    return _price_electricity(costs)[1]


def create_owned(hardware_usd: float, costs: RunningCosts) -> "OwnedHardware":
    """Create the input of the ownership formulas."""
    from gpuyard.economics.ownership import OwnedHardware

    owned = OwnedHardware(
        hardware_usd=hardware_usd,
        watts=costs.power,
        idle_watts=costs.idle_power,
        pue=costs.pue,
        usd_per_kwh=_price_electricity(costs)[0],
        colocation_usd_per_year=costs.colocation.usd_per_year,
        colocation_usd_per_kw_month=costs.colocation.usd_per_kw_month,
        support_share_per_year=costs.support,
        staff_hours_per_month=costs.staff_hours,
        staff_usd_per_hour=costs.staff,
        value_kept_per_year=costs.value_kept,
    )
    if not isinstance(costs, OwningCosts):
        return owned
    return replace(
        owned,
        spares_share=costs.spares,
        installation_usd=costs.installation,
        network_usd=costs.network_cost,
        gpus=costs.gpus,
        usd_per_failure=costs.failure,
        financed_share=costs.financed,
        interest_per_year=costs.interest,
        loan_years=costs.loan,
        straight_line_years=costs.depreciation,
    )
