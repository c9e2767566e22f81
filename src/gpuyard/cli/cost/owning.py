"""The options that say what owning costs, and reading prices from the command line."""

import datetime
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuyard.errors import BadQuantity, UserMistake

if TYPE_CHECKING:
    from gpuyard.economics.ownership import Owned

SparesOption = Annotated[
    str, typer.Option(help="Spares, as a share of the hardware's price, e.g. '5 %'.")
]
InstallationOption = Annotated[str, typer.Option(help="Paid once for installation, e.g. '$2000'.")]
NetworkOption = Annotated[str, typer.Option(help="Paid once for switches and cables.")]
PowerOption = Annotated[str, typer.Option(help="Power under load, e.g. '3.5 kW'.")]
IdlePowerOption = Annotated[str, typer.Option(help="Power when idle, e.g. '700 W'.")]
TariffOption = Annotated[str, typer.Option(help="Price of electricity, e.g. '$0.12/kWh'.")]
PueOption = Annotated[
    float, typer.Option(help="Power of the building for each watt of the machines; 1 or more.")
]
ColocationOption = Annotated[
    str, typer.Option(help="By rack, e.g. '$15000/year', or by power, e.g. '$184/kW/month'.")
]
SupportOption = Annotated[
    str, typer.Option(help="Support a year, as a share of the hardware's price.")
]
StaffHoursOption = Annotated[float, typer.Option(min=0, help="Hours of staff a month.")]
StaffOption = Annotated[str, typer.Option(help="Price of staff, e.g. '$75/h'.")]
GpusOption = Annotated[int, typer.Option(min=0, help="GPUs that can fail.")]
FailureOption = Annotated[
    str, typer.Option(help="Price of one failure; one comes in 50,700 GPU-hours as in Llama 3.")
]
FinancedOption = Annotated[str, typer.Option(help="Share of what is paid once that is borrowed.")]
InterestOption = Annotated[str, typer.Option(help="Interest of the loan a year, e.g. '6 %'.")]
LoanOption = Annotated[str, typer.Option(help="How long the loan runs, e.g. '3 years'.")]
ValueKeptOption = Annotated[
    str, typer.Option(help="What a year leaves of the hardware's resale value, e.g. '70 %'.")
]
DepreciationOption = Annotated[
    str,
    typer.Option(help="Instead: years in which its value falls evenly to nothing, e.g. '5 years'."),
]
PriceDateOption = Annotated[
    str | None, typer.Option(help="The day of the prices that you give; today unless said.")
]


@dataclass(frozen=True)
class OwningTexts:
    """The options as they were written."""

    spares: SparesOption = "0 %"
    installation: InstallationOption = "$0"
    network: NetworkOption = "$0"
    power: PowerOption = "0 W"
    idle_power: IdlePowerOption = "0 W"
    tariff: TariffOption = "$0/kWh"
    pue: PueOption = 1.0
    colocation: ColocationOption = "$0/year"
    support: SupportOption = "0 %"
    staff_hours: StaffHoursOption = 0.0
    staff: StaffOption = "$0/h"
    gpus: GpusOption = 0
    failure: FailureOption = "$0"
    financed: FinancedOption = "0 %"
    interest: InterestOption = "0 %"
    loan: LoanOption = "3 years"
    value_kept: ValueKeptOption = "0 %"
    depreciation: DepreciationOption = "0 s"


def takes_owning(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command with these options of owning (all, if none is named) in place of its `owning`."""
    options = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type
        )
        for field in fields(OwningTexts)
        if not names or field.name in names
    ]

    def with_options(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**given: Any) -> None:
            texts = OwningTexts(**{option.name: given.pop(option.name) for option in options})
            command(owning=texts, **given)

        plain = inspect.signature(command)
        parameters = [
            parameter
            for name, one in plain.parameters.items()
            for parameter in (options if name == "owning" else [one])
        ]
        run.__signature__ = plain.replace(parameters=parameters)  # type: ignore[attr-defined]
        return run

    return with_options


def owned_from(buy: str, texts: OwningTexts) -> "Owned":
    """What owning costs, as the formulas take it."""
    from gpuyard import units
    from gpuyard.economics.amounts import HOURS_PER_YEAR
    from gpuyard.economics.ownership import Owned

    by_year, by_kw = _colocation(texts.colocation)
    return Owned(
        hardware_usd=units.parse_usd(buy),
        spares_share=units.parse_share(texts.spares),
        installation_usd=units.parse_usd(texts.installation),
        network_usd=units.parse_usd(texts.network),
        watts=units.parse_watts(texts.power),
        idle_watts=units.parse_watts(texts.idle_power),
        pue=texts.pue,
        usd_per_kwh=units.parse_usd_per_kwh(texts.tariff),
        colocation_usd_per_year=by_year,
        colocation_usd_per_kw_month=by_kw,
        support_share_per_year=units.parse_share(texts.support),
        staff_hours_per_month=texts.staff_hours,
        staff_usd_per_hour=units.parse_usd_per_hour(texts.staff),
        gpus=texts.gpus,
        usd_per_failure=units.parse_usd(texts.failure),
        financed_share=units.parse_share(texts.financed),
        interest_per_year=units.parse_share(texts.interest),
        loan_years=units.parse_seconds(texts.loan) / 3600 / HOURS_PER_YEAR,
        value_kept_per_year=units.parse_share(texts.value_kept),
        straight_line_years=units.parse_seconds(texts.depreciation) / 3600 / HOURS_PER_YEAR,
    )


@dataclass(frozen=True)
class Rent:
    """A price of renting, by the hour of use or by the year."""

    usd_per_hour: float
    usd_per_year: float
    words: str
    date: datetime.date | None


def read_rent(text: str) -> Rent:
    """ "$1.50/h", "$160308/year", or an instance of the catalog with its price and date."""
    from gpuyard import units

    if "/" in text and "$" not in text and not text[:1].isdigit():
        from gpuyard.catalog import price_named

        price = price_named(text)
        return Rent(price.usd_per_hour, 0.0, price.id, price.date)
    try:
        hourly = units.parse_usd_per_hour(text)
        return Rent(hourly, 0.0, f"{units.format_usd(hourly)}/h", None)
    except BadQuantity:
        pass
    try:
        yearly = units.parse_usd_per_year(text)
        return Rent(0.0, yearly, f"{units.format_usd(yearly)} a year", None)
    except BadQuantity:
        raise UserMistake(
            f"{text!r} is not a price of renting; write it like '$1.50/h', '$160308/year' or "
            "'aws/p4d.24xlarge'"
        ) from None


def read_months(text: str) -> int:
    """ "3 years" → 36."""
    from gpuyard import units
    from gpuyard.economics.amounts import HOURS_PER_MONTH

    return round(units.parse_seconds(text) / 3600 / HOURS_PER_MONTH)


def given_on(price_date: str | None) -> datetime.date:
    """The day of prices that were typed: today, or what was said."""
    if price_date is None:
        return datetime.datetime.now(datetime.UTC).date()
    try:
        return datetime.date.fromisoformat(price_date)
    except ValueError:
        raise UserMistake(f"{price_date!r} is not a day; write it like 2026-01-31") from None


def _colocation(text: str) -> tuple[float, float]:
    from gpuyard import units

    try:
        return units.parse_usd_per_year(text), 0.0
    except BadQuantity:
        pass
    try:
        return 0.0, units.parse_usd_per_kw_month(text)
    except BadQuantity:
        raise UserMistake(
            f"{text!r} is not a price of colocation; write it like '$15000/year' or '$184/kW/month'"
        ) from None
