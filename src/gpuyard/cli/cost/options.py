"""Options that several `gpuyard cost` commands share: ownership costs, the horizon, and the date of prices."""

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


def quantity_option(parse: Callable[[str], Any], metavar: str, help_text: str) -> Any:
    """Return an option with a unit; the help text names the default if it is not zero."""

    def parse_if_text(value: Any) -> Any:
        return parse(value) if isinstance(value, str) else value  # a default is already a number

    return typer.Option(parser=parse_if_text, metavar=metavar, help=help_text, show_default=False)


def share_option(help_text: str) -> Any:
    """Return an option for values like '30%'."""
    return quantity_option(units.parse_share, "SHARE", help_text)


def usd_option(help_text: str) -> Any:
    """Return an option for values like '$8000'."""
    return quantity_option(units.parse_usd, "PRICE", help_text)


def parse_years(text: str) -> float:
    """Parse a duration in years: "18 months" is 1.5."""
    return units.parse_seconds(text, "3 years") / _YEAR_SECONDS


def parse_months(text: str) -> int:
    """Parse a duration in months: "3 years" is 36."""
    return round(12 * parse_years(text))


class Colocation(NamedTuple):
    """The price of colocation, per rack or per kW."""

    usd_per_year: float = 0.0
    usd_per_kw_month: float = 0.0


_NO_COLOCATION = Colocation()


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


def parse_day(text: str) -> datetime.date:
    """Parse a date like "2026-01-31"."""
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise UserMistake(f"{text!r} is not a date; write it like 2026-01-31") from None


HorizonOption = Annotated[
    int, quantity_option(parse_months, "TIME", "Planning horizon (default: 3 years).")
]
DiscountRateOption = Annotated[
    float, share_option("Discount rate per year, for the present value.")
]
GpusPerMachineOption = Annotated[int, typer.Option(min=1, help="GPUs in one machine.")]
PriceDateOption = Annotated[
    datetime.date | None,
    quantity_option(parse_day, "DAY", "Date of the prices you give (default: today)."),
]


def choose_price_date(price_date: datetime.date | None) -> datetime.date:
    """Return the date of prices given on the command line, today by default."""
    return price_date or datetime.datetime.now(datetime.UTC).date()


@dataclass(frozen=True)
class RunningOptions:
    """Options for the running costs of a machine."""

    power: Annotated[
        float, quantity_option(units.parse_watts, "POWER", "Power under load, e.g. '3.5 kW'.")
    ] = 0.0
    idle_power: Annotated[
        float, quantity_option(units.parse_watts, "POWER", "Power when idle, e.g. '700 W'.")
    ] = 0.0
    tariff: Annotated[
        float,
        quantity_option(units.parse_usd_per_kwh, "PRICE", "Electricity price, e.g. '$0.12/kWh'."),
    ] = 0.0
    country: CountryOption = None
    pue: Annotated[float, typer.Option(help="Total power per watt of the machines, 1 or more.")] = (
        1.0
    )
    colocation: Annotated[
        Colocation,
        quantity_option(
            parse_colocation, "PRICE", "Colocation rent: '$15000/year' or '$184/kW/month'."
        ),
    ] = _NO_COLOCATION
    support: Annotated[
        float, share_option("Support per year, as a share of the hardware price.")
    ] = 0.0
    staff_hours: Annotated[
        float, typer.Option(min=0, show_default=False, help="Staff hours per month.")
    ] = 0.0
    staff: Annotated[
        float, quantity_option(units.parse_usd_per_hour, "PRICE", "Staff cost, e.g. '$75/h'.")
    ] = 0.0
    value_kept: Annotated[float, share_option("Resale value kept per year, e.g. '70%'.")] = 0.0


@dataclass(frozen=True)
class OwningOptions(RunningOptions):
    """Options for all costs of owning except the hardware."""

    spares: Annotated[
        float, share_option("Spares, as a share of the hardware price, e.g. '5%'.")
    ] = 0.0
    installation: Annotated[float, usd_option("Installation, paid once, e.g. '$2000'.")] = 0.0
    network: Annotated[float, usd_option("Switches and cables, paid once.")] = 0.0
    gpus: Annotated[
        int, typer.Option(min=0, show_default=False, help="Number of GPUs, for failures.")
    ] = 0
    failure: Annotated[
        float, usd_option("Cost of a failure; one in 50,700 GPU-hours, as in Llama 3.")
    ] = 0.0
    financed: Annotated[float, share_option("Borrowed share of the up-front cost.")] = 0.0
    interest: Annotated[float, share_option("Interest on the loan per year, e.g. '6%'.")] = 0.0
    loan: Annotated[
        float, quantity_option(parse_years, "TIME", "Term of the loan (default: 3 years).")
    ] = 3.0
    depreciation: Annotated[
        float,
        quantity_option(
            parse_years,
            "TIME",
            "Straight-line depreciation instead of --value-kept, e.g. '5 years'.",
        ),
    ] = 0.0


def expand_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter that is a dataclass of options by those options."""
    signature = inspect.signature(command)
    groups: dict[str, Any] = {
        n: p.annotation for n, p in signature.parameters.items() if is_dataclass(p.annotation)
    }

    @functools.wraps(command)
    def run(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**values)

    def expand(name: str, parameter: inspect.Parameter) -> list[inspect.Parameter]:
        if name not in groups:
            return [parameter]
        return [
            parameter.replace(name=field.name, default=field.default, annotation=field.type)
            for field in fields(groups[name])
        ]

    parameters = [
        p for name, parameter in signature.parameters.items() for p in expand(name, parameter)
    ]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run


def _price_electricity(options: RunningOptions) -> tuple[float, str]:
    """Return the electricity price from --tariff or --country, and a sentence about it."""
    from gpuyard.catalog.electricity import price_electricity

    if options.country is not None and options.tariff:
        raise UserMistake("give --tariff or --country, not both")
    option_names = ("--power", "--tariff or --country")
    return price_electricity(options.power, options.tariff, options.country, option_names)


def describe_electricity(options: RunningOptions) -> str:
    """Describe the electricity price in use, or that electricity is not counted."""
    return _price_electricity(options)[1]


def create_owned(hardware_usd: float, options: RunningOptions) -> "Owned":
    """Create the input of the ownership formulas from the options."""
    from gpuyard.economics.ownership import Owned

    owned = Owned(
        hardware_usd=hardware_usd,
        watts=options.power,
        idle_watts=options.idle_power,
        pue=options.pue,
        usd_per_kwh=_price_electricity(options)[0],
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
