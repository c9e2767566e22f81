"""`gpuyard deploy cost`: what the machines of a deployment cost while they are there."""

from typing import Annotated

import typer

from gpuyard import units
from gpuyard.cli.cost.options import quantity
from gpuyard.cli.deploy.options import FileArgument
from gpuyard.cli.options import CountryOption
from gpuyard.cli.output import JsonOption, show, working
from gpuyard.errors import UserMistake


def cost(
    file: FileArgument,
    *,
    tariff: Annotated[
        float | None,
        quantity(
            units.parse_usd_per_kwh, "PRICE", "Electricity of own machines, e.g. '$0.12/kWh'."
        ),
    ] = None,
    country: CountryOption = None,
    pue: Annotated[
        float, typer.Option(min=1, help="Power of the building per watt of the machines.")
    ] = 1.0,
    json_output: JsonOption = False,
) -> None:
    """Say what it costs per hour, day and month and until it is removed automatically, against its budget.

    Machines that you rent cost what their cloud charges now; your own cost their electricity.

    Example: gpuyard deploy cost examples/pair.deployment.yaml
    """
    from gpuyard.catalog.electricity import Tariff, tariff_of
    from gpuyard.deploy import deployment as room
    from gpuyard.deploy.cost import cost_of
    from gpuyard.report.answers.deploy import cost_answer

    if tariff is not None and country is not None:
        raise UserMistake("give --tariff or --country, not both")
    price = Tariff(tariff) if tariff is not None else None
    if country is not None:
        price = tariff_of(None, country, "--tariff")
    opened = room.open_deployment(file)
    with working("asking for prices"):
        found = cost_of(opened, price, pue)
    show(cost_answer(found), json_output=json_output)
