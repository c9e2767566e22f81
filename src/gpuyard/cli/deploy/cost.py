"""`gpuyard deploy cost`: shows the running cost of a deployment's machines."""

from typing import Annotated

import typer

from gpuyard import units
from gpuyard.cli.cost.options import quantity_option
from gpuyard.cli.deploy.options import FileArgument
from gpuyard.cli.options import CountryOption
from gpuyard.cli.output import JsonOption, show, show_status
from gpuyard.errors import UserMistake


def cost(
    file: FileArgument,
    *,
    tariff: Annotated[
        float | None,
        quantity_option(
            units.parse_usd_per_kwh,
            "PRICE",
            "Electricity price for your own machines, e.g. '$0.12/kWh'.",
        ),
    ] = None,
    country: CountryOption = None,
    pue: Annotated[
        float,
        typer.Option(min=1, help="Power usage effectiveness: building power per watt of IT load."),
    ] = 1.0,
    json_output: JsonOption = False,
) -> None:
    """Show its cost per hour, day, and month, and until it is removed automatically, against its budget.

    Rented machines cost what their cloud charges now; your own machines cost their electricity.

    Example: gpuyard deploy cost examples/pair.deployment.yaml
    """
    from gpuyard.catalog.electricity import Tariff, select_tariff
    from gpuyard.deploy.cost import calculate_cost
    from gpuyard.deploy.deployment import load_deployment
    from gpuyard.report.answers.deploy import cost_answer

    if tariff is not None and country is not None:
        raise UserMistake("give --tariff or --country, not both")
    price = Tariff(tariff) if tariff is not None else None
    if country is not None:
        price = select_tariff(None, country, "--tariff")
    loaded = load_deployment(file)
    with show_status("asking for prices"):
        deployment_cost = calculate_cost(loaded, price, pue)
    show(cost_answer(deployment_cost), json_output=json_output)
