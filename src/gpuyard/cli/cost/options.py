"""The options that several questions of cost share: what owning costs, the horizon, the day of the prices."""

import datetime
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from gpuyard import units
from gpuyard.cli.options import CountryOption
from gpuyard.errors import BadQuantity, UserMistake

if TYPE_CHECKING:
    from gpuyard.economics.ownership import Owned

_YEAR_SECONDS = units.parse_seconds("1 year")


def quantity(parse: Callable[[str], Any], metavar: str, help_text: str) -> Any:
    """An option with a unit; its help says what holds where it is left out, if that is not nothing."""

    def parsed(value: Any) -> Any:
        return parse(value) if isinstance(value, str) else value  # a default is a number already

    return typer.Option(parser=parsed, metavar=metavar, help=help_text, show_default=False)


def share(help_text: str) -> Any:
    """An option like '30 %'."""
    return quantity(units.parse_share, "SHARE", help_text)


def usd(help_text: str) -> Any:
    """An option like '$8000'."""
    return quantity(units.parse_usd, "PRICE", help_text)


def years(text: str) -> float:
    """ "18 months" → 1.5."""
    return units.parse_seconds(text, "3 years") / _YEAR_SECONDS


def months(text: str) -> int:
    """ "3 years" → 36."""
    return round(12 * years(text))


class Colocation(NamedTuple):
    """By the rack or by the kW."""

    usd_per_year: float = 0.0
    usd_per_kw_month: float = 0.0


_NO_COLOCATION = Colocation()


def colocation_price(text: str) -> Colocation:
    """ "$15000/year" or "$184/kW/month"."""
    for parse, field in (
        (units.parse_usd_per_year, "usd_per_year"),
        (units.parse_usd_per_kw_month, "usd_per_kw_month"),
    ):
        try:
            return Colocation(**{field: parse(text)})
        except BadQuantity:
            continue
    raise UserMistake(
        f"{text!r} is not a price of colocation; write it like '$15000/year' or '$184/kW/month'"
    )


def day(text: str) -> datetime.date:
    """ "2026-01-31"."""
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise UserMistake(f"{text!r} is not a day; write it like 2026-01-31") from None


HorizonOption = Annotated[int, quantity(months, "TIME", "Planning horizon (default: 3 years).")]
DiscountRateOption = Annotated[float, share("Discount rate per year, for the present value.")]
GpusPerMachineOption = Annotated[int, typer.Option(min=1, help="GPUs in one machine.")]
PriceDateOption = Annotated[
    datetime.date | None, quantity(day, "DAY", "The day of the prices you give (default: today).")
]


def given_on(price_date: datetime.date | None) -> datetime.date:
    """The day of prices that were typed."""
    return price_date or datetime.datetime.now(datetime.UTC).date()


@dataclass(frozen=True)
class RunningOptions:
    """What a machine needs once it is there."""

    power: Annotated[
        float, quantity(units.parse_watts, "POWER", "Power under load, e.g. '3.5 kW'.")
    ] = 0.0
    idle_power: Annotated[
        float, quantity(units.parse_watts, "POWER", "Power when idle, e.g. '700 W'.")
    ] = 0.0
    tariff: Annotated[
        float, quantity(units.parse_usd_per_kwh, "PRICE", "Electricity, e.g. '$0.12/kWh'.")
    ] = 0.0
    country: CountryOption = None
    pue: Annotated[
        float, typer.Option(help="Power of the building per watt of the machines, 1 or more.")
    ] = 1.0
    colocation: Annotated[
        Colocation, quantity(colocation_price, "PRICE", "'$15000/year' or '$184/kW/month'.")
    ] = _NO_COLOCATION
    support: Annotated[float, share("Support per year, of the hardware's price.")] = 0.0
    staff_hours: Annotated[
        float, typer.Option(min=0, show_default=False, help="Staff hours per month.")
    ] = 0.0
    staff: Annotated[
        float, quantity(units.parse_usd_per_hour, "PRICE", "Staff cost, e.g. '$75/h'.")
    ] = 0.0
    value_kept: Annotated[float, share("Resale value kept each year, e.g. '70 %'.")] = 0.0


@dataclass(frozen=True)
class OwningOptions(RunningOptions):
    """All that owning costs besides the hardware."""

    spares: Annotated[float, share("Spares, of the hardware's price, e.g. '5 %'.")] = 0.0
    installation: Annotated[float, usd("Installation, paid once, e.g. '$2000'.")] = 0.0
    network: Annotated[float, usd("Switches and cables, paid once.")] = 0.0
    gpus: Annotated[
        int, typer.Option(min=0, show_default=False, help="Number of GPUs, for failures.")
    ] = 0
    failure: Annotated[float, usd("Cost of a failure; one in 50,700 GPU-hours, as in Llama 3.")] = (
        0.0
    )
    financed: Annotated[float, share("Share of the up-front cost that is borrowed.")] = 0.0
    interest: Annotated[float, share("Interest on the loan per year, e.g. '6 %'.")] = 0.0
    loan: Annotated[float, quantity(years, "TIME", "Term of the loan (default: 3 years).")] = 3.0
    depreciation: Annotated[
        float, quantity(years, "TIME", "Instead of --value-kept: straight-line, e.g. '5 years'.")
    ] = 0.0


def takes_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Each parameter that is a dataclass of options becomes those options."""
    plain = inspect.signature(command)
    groups: dict[str, Any] = {
        n: p.annotation for n, p in plain.parameters.items() if is_dataclass(p.annotation)
    }

    @functools.wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        command(**given)

    def expanded(name: str, parameter: inspect.Parameter) -> list[inspect.Parameter]:
        if name not in groups:
            return [parameter]
        return [
            parameter.replace(name=field.name, default=field.default, annotation=field.type)
            for field in fields(groups[name])
        ]

    parameters = [one for n, p in plain.parameters.items() for one in expanded(n, p)]
    run.__signature__ = plain.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run


def _electricity(options: RunningOptions) -> tuple[float, str]:
    """Given, of a country, or not counted."""
    from gpuyard.catalog.electricity import counted_tariff

    if options.country is not None and options.tariff:
        raise UserMistake("give --tariff or --country, not both")
    asked = ("--power", "--tariff or --country")
    return counted_tariff(options.power, options.tariff, options.country, asked)


def electricity_words(options: RunningOptions) -> str:
    """Which price the answer uses, or that none is counted."""
    return _electricity(options)[1]


def owned_machine(hardware_usd: float, options: RunningOptions) -> "Owned":
    """What owning costs, as the formulas take it."""
    from gpuyard.economics.ownership import Owned

    owned = Owned(
        hardware_usd=hardware_usd,
        watts=options.power,
        idle_watts=options.idle_power,
        pue=options.pue,
        usd_per_kwh=_electricity(options)[0],
        colocation_usd_per_year=options.colocation.usd_per_year,
        colocation_usd_per_kw_month=options.colocation.usd_per_kw_month,
        support_share_per_year=options.support,
        staff_hours_per_month=options.staff_hours,
        staff_usd_per_hour=options.staff,
        value_kept_per_year=options.value_kept,
    )
    if not isinstance(options, OwningOptions):
        return owned
    from dataclasses import replace

    return replace(
        owned,
        spares_share=options.spares,
        installation_usd=options.installation,
        network_usd=options.network,
        gpus=options.gpus,
        usd_per_failure=options.failure,
        financed_share=options.financed,
        interest_per_year=options.interest,
        loan_years=options.loan,
        straight_line_years=options.depreciation,
    )
