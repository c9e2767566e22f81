"""`gpuyard cost growth`: when a growing team buys its next machine."""

from typing import Annotated

import typer

from gpuyard.cli.cost.owning import PriceDateOption, given_on, read_months, read_rent
from gpuyard.cli.options import JsonOption, PageOption, console, print_json, print_page, print_table


def growth(
    *,
    researchers: Annotated[float, typer.Option(help="People who train models, today.")],
    hires_per_year: Annotated[float, typer.Option(help="How many join each year.")] = 0.0,
    gpu_hours: Annotated[float, typer.Option(help="GPU-hours of one person in a month.")],
    demand_growth: Annotated[
        str, typer.Option(help="How much more one person wants each year, e.g. '30 %'.")
    ] = "0 %",
    rent: Annotated[str, typer.Option(help="Renting one GPU, e.g. '$1.50/h'.")],
    buy: Annotated[str, typer.Option(help="Buying one machine, e.g. '$28389'.")],
    gpus_per_machine: Annotated[int, typer.Option(min=1, help="GPUs of that machine.")] = 1,
    running: Annotated[
        str, typer.Option(help="Power, space and people for one machine, e.g. '$6000/year'.")
    ] = "$0/year",
    usable: Annotated[str, typer.Option(help="Share of its hours that people can fill.")] = "70 %",
    price_falls: Annotated[
        str, typer.Option(help="By how much machines get cheaper each year.")
    ] = "0 %",
    value_kept: Annotated[
        str, typer.Option(help="What a year leaves of a machine's resale value.")
    ] = "0 %",
    budget: Annotated[
        str | None, typer.Option(help="What may be spent on machines, e.g. '$60000/year'.")
    ] = None,
    discount_rate: Annotated[
        str, typer.Option(help="What money is worth a year, for the present value.")
    ] = "0 %",
    horizon: Annotated[str, typer.Option(help="How far to look ahead.")] = "3 years",
    price_date: PriceDateOption = None,
    html: PageOption = None,
    json_output: JsonOption = False,
) -> None:
    """Say when to buy each next machine, and rent what the owned ones can't do.

    Example: gpuyard cost growth --researchers 12 --hires-per-year 4 --gpu-hours 120 --rent '$1.50/h' --buy '$28389' --gpus-per-machine 8
    """
    from dataclasses import asdict

    from gpuyard import units
    from gpuyard.economics.growth import Growth, NextMachine, plan_growth
    from gpuyard.errors import UserMistake

    rented = read_rent(rent)
    if rented.usd_per_year:
        raise UserMistake("--rent is the price of one GPU by the hour")
    plan = plan_growth(
        Growth(
            people=researchers,
            hires_per_year=hires_per_year,
            gpu_hours_per_person_month=gpu_hours,
            demand_growth_per_year=units.parse_share(demand_growth),
            months=read_months(horizon),
        ),
        NextMachine(
            gpus=gpus_per_machine,
            price_usd=units.parse_usd(buy),
            running_usd_per_month=units.parse_usd_per_year(running) / 12,
            rent_usd_per_gpu_hour=rented.usd_per_hour,
            usable_share=units.parse_share(usable),
            price_change_per_year=-units.parse_share(price_falls),
            value_kept_per_year=units.parse_share(value_kept),
            budget_usd_per_year=None if budget is None else units.parse_usd_per_year(budget),
            discount_per_year=units.parse_share(discount_rate),
        ),
    )
    day = (rented.date or given_on(price_date)).isoformat()
    columns = ["machine", "month", "people then", "GPU-hours wanted", "price", "saves"]
    rows = [
        [
            str(one.number),
            str(one.month),
            str(one.people),
            f"{one.demand_gpu_hours:,.0f}",
            units.format_usd(one.price_usd),
            units.format_usd(one.saves_usd),
        ]
        for one in plan.purchases
    ]
    sentence = (
        f"All together {units.format_usd(plan.total_usd)} in {units.format_months(len(plan.people))}; "
        f"renting all {units.format_usd(plan.rent_all_usd)}. Prices of {day}."
    )
    if plan.held_back_by_budget:
        sentence += f" The budget holds back {plan.held_back_by_budget} machine(s)."
    if html is not None:
        from gpuyard.report.cost_page import CostPage, NumberTable, growth_charts, write_cost_page

        page = CostPage(
            title="When to buy the next machine",
            prices=f"prices of {day}",
            sentences=[sentence],
            charts=growth_charts(plan),
            tables=[NumberTable("What to buy when", columns, rows)],
        )
        write_cost_page(page, html)
    if json_output:
        print_json(asdict(plan) | {"price_date": day})
        return
    print_table("What to buy at the start of which month", columns, rows)
    console().print(sentence, highlight=False, soft_wrap=True)
    print_page(html)
