"""`gpuyard cost compare`: compare offers for the same work."""

from pathlib import Path
from typing import Annotated

import typer

from gpuyard.cli.cost.options import PriceDateOption
from gpuyard.cli.output import JsonOption, PageOption, show


def compare(
    file: Annotated[Path, typer.Argument(help="Offers file (*.offers.yaml).")],
    *,
    price_date: PriceDateOption = None,
    html: PageOption = None,
    json_output: JsonOption = False,
) -> None:
    """Price every offer in a file for the same work, and the best mix of owning and renting.

    Example: gpuyard cost compare examples/v100.offers.yaml
    """
    from gpuyard.api.offers import compare_offers

    result = compare_offers(file, price_date=price_date, chart=html is not None)
    show(result.answer, json_output=json_output, html=html)
