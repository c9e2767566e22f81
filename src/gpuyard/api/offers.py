"""Compare offers for the same work, and the best mix of owning and renting."""

import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from gpuyard.api.cost import choose_price_date
from gpuyard.api.result import Result, Row, wrap

if TYPE_CHECKING:
    from gpuyard.specs.offers import Offers


def compare_offers(
    offers: "str | Path | Offers", *, price_date: datetime.date | None = None, chart: bool = False
) -> Result[Row]:
    """Price every offer of a *.offers.yaml for the same work."""
    from gpuyard.catalog.specfiles import read_offers
    from gpuyard.economics.offer_comparison import compare_offers as compare
    from gpuyard.report.answers.cost.offers import offers_answer

    spec = read_offers(Path(offers)) if isinstance(offers, str | Path) else offers
    day = choose_price_date(price_date)
    answer = offers_answer(spec, compare(spec), day, with_chart=chart)
    return Result(answer, wrap(answer.document["offers"]))
