"""`gpuyard cost compare`: compare offers for the same work."""

from pathlib import Path
from typing import Annotated

import typer

from gpuyard.api.cost import choose_price_date
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
    from gpuyard.catalog.specfiles import read_offers
    from gpuyard.economics.offers import compare_offers
    from gpuyard.report.answers.cost.offers import offers_answer

    offers = read_offers(file)
    day = choose_price_date(price_date)
    answer = offers_answer(offers, compare_offers(offers), day, with_chart=html is not None)
    show(answer, json_output=json_output, html=html)
