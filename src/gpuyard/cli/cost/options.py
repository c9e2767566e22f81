"""Options that several `gpuyard cost` commands share: ownership costs, the horizon, and the date of prices."""

import datetime
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuyard import units
from gpuyard.api.cost import (
    NO_COLOCATION,
    Colocation,
    OwningCosts,
    RunningCosts,
    parse_colocation,
    parse_months,
    parse_years,
)
from gpuyard.cli.options import CountryOption
from gpuyard.errors import UserMistake

if TYPE_CHECKING:
    pass


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
GpusPerNodeOption = Annotated[int, typer.Option(min=1, help="GPUs in one machine.")]
PriceDateOption = Annotated[
    datetime.date | None,
    quantity_option(parse_day, "DAY", "Date of the prices you give (default: today)."),
]


@dataclass(frozen=True)
class RunningOptions(RunningCosts):
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
    ] = NO_COLOCATION
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
class OwningOptions(RunningOptions, OwningCosts):
    """Options for all costs of owning except the hardware."""

    spares: Annotated[
        float, share_option("Spares, as a share of the hardware price, e.g. '5%'.")
    ] = 0.0
    installation: Annotated[float, usd_option("Installation, paid once, e.g. '$2000'.")] = 0.0
    network_cost: Annotated[float, usd_option("Switches and cables, paid once.")] = 0.0
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
