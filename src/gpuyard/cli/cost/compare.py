"""`gpuyard cost compare`: offers side by side, for the same work."""

from pathlib import Path
from typing import Annotated

import typer

from gpuyard.cli.cost.options import PriceDateOption, given_on
from gpuyard.cli.output import JsonOption, PageOption, show


def compare(
    file: Annotated[Path, typer.Argument(help="An *.offers.yaml file.")],
    *,
    price_date: PriceDateOption = None,
    html: PageOption = None,
    json_output: JsonOption = False,
) -> None:
    """Price every offer of a file for the same work, and the best mix of owning and renting.

    Example: gpuyard cost compare examples/v100.offers.yaml
    """
    from gpuyard.catalog.specfiles import read_offers
    from gpuyard.economics.offers import compare_offers
    from gpuyard.report.answers.cost.offers import offers_answer

    offers = read_offers(file)
    answer = offers_answer(offers, compare_offers(offers), given_on(price_date))
    show(answer, json_output=json_output, html=html)
