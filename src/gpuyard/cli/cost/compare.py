"""`gpuyard cost compare`: offers side by side, for the same work."""

from pathlib import Path
from typing import Annotated

import typer

from gpuyard.cli.cost.owning import PriceDateOption
from gpuyard.cli.options import JsonOption, PageOption, console, print_json, print_page, print_table


def compare(
    file: Annotated[Path, typer.Argument(help="An *.offers.yaml file.", metavar="FILE")],
    *,
    price_date: PriceDateOption = None,
    html: PageOption = None,
    json_output: JsonOption = False,
) -> None:
    """Price every offer of a file for the same work, and the best mix of owning and renting.

    Example: gpuyard cost compare examples/v100.offers.yaml
    """
    from dataclasses import asdict

    from gpuyard import units
    from gpuyard.catalog.specfiles import read_offers
    from gpuyard.cli.cost.owning import given_on
    from gpuyard.economics.mixed_offer import compare_offers

    offers = read_offers(file)
    priced = compare_offers(offers)
    day = given_on(price_date)
    columns = ["offer", "kind", "all", "today's worth", "an hour of work", "a run", "price of"]
    rows = [
        [
            offer.name,
            offer.kind,
            units.format_usd(offer.total_usd),
            units.format_usd(offer.present_value_usd),
            units.format_usd(offer.usd_per_hour_of_work),
            "" if offer.usd_per_run is None else units.format_usd(offer.usd_per_run),
            offer.price_date.isoformat() if offer.price_date else "as given",
        ]
        for offer in priced
    ]
    if html is not None:
        from gpuyard.report.cost_page import CostPage, NumberTable, offers_charts, write_cost_page

        first = priced[0]
        page = CostPage(
            title=offers.name,
            prices=f"Prices of the days shown, others as given on {day}",
            sentences=[
                f"The cheapest is {first.name}: {units.format_usd(first.total_usd)} in all, "
                f"{units.format_usd(first.usd_per_hour_of_work)} an hour of work."
            ],
            charts=offers_charts(priced),
            tables=[NumberTable("Offers, the cheapest first", columns, rows)],
        )
        write_cost_page(page, html)
    if json_output:
        documents = [asdict(o) | {"price_date": (o.price_date or day).isoformat()} for o in priced]
        print_json({"name": offers.name, "offers": documents})
        return
    title = f"{offers.name}: {offers.hours_per_year:,.0f} hours of work a year"
    print_table(
        f"{title}, over {units.format_months(len(priced[0].cash_by_month) - 1)}", columns, rows
    )
    console().print(f"Prices of the days shown, others as given on {day}.", highlight=False)
    print_page(html)
