"""`gpuyard plan`: which machines to get for a goal, and why."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.calibrations import CalibrationOption, chosen_calibration
from gpuyard.cli.options import JsonOption, console, print_json, print_table

if TYPE_CHECKING:
    from gpuyard.planner import Choice, PlanResult


def plan(
    file: Annotated[Path, typer.Argument(help="A *.plan.yaml.", metavar="FILE")],
    *,
    html: Annotated[
        Path | None, typer.Option(help="Also write an HTML page with a chart of cost against time.")
    ] = None,
    site: Annotated[
        Path | None,
        typer.Option(
            help="A *.site.yaml, the site for bought machines, instead of the plan's.",
            metavar="FILE",
        ),
    ] = None,
    calibration: CalibrationOption = None,
    json_output: JsonOption = False,
) -> None:
    """Say which machines to rent or buy for a goal, and why.

    Searches offers, GPUs, nodes, networks, batches and remedies.

    Example: gpuyard plan examples/resnet50.plan.yaml
    """
    from gpuyard.catalog.specfiles import read_plan, read_site
    from gpuyard.planner import make_plan

    asked, constants = read_plan(file), chosen_calibration(calibration)
    stands = None if site is None else read_site(site)
    with console(stderr=True).status("searching"):
        result = make_plan(asked, file.parent, constants, stands)
    if html is not None:
        from gpuyard.report.page import write_plan

        write_plan(result, html)
        console(stderr=True).print(f"Wrote {html}.", highlight=False)
    if json_output:
        print_json(result.as_json())
        return
    _print(result)


def _print(result: "PlanResult") -> None:
    out = console()
    out.print(result.name, style="bold", highlight=False, markup=False)
    out.print(result.verdict, highlight=False, markup=False)
    for reason in result.reasons:
        out.print(f"- {reason}", highlight=False, markup=False)
    if result.front:
        print_table(
            "Best options: no other is both cheaper and faster",
            ["what", "how acquired", "GPUs", "network", "batch", "remedy", "efficiency", "effective GPUs",
             "time", "cost per run", "total", "goal"],
            [_row(choice) for choice in result.front],
        )  # fmt: skip
    if result.places:
        print_table(*result.siting_table)
    if result.alternatives:
        print_table(
            "Why the others lost",
            ["alternative", "why"],
            [[other.name, other.sentence] for other in result.alternatives],
        )
    print_table(
        f"{result.candidates:,} candidates from {result.offers:,} offers; ruled out",
        ["why", "candidates"],
        [[left.reason, f"{left.candidates:,}"] for left in result.left_out],
    )
    for assumption in result.assumptions:
        out.print(assumption, highlight=False, markup=False)
    out.print(result.price_dates, highlight=False, markup=False)


def _row(choice: "Choice") -> list[str]:
    from gpuyard import units
    from gpuyard.planner.result import dollars

    return [
        choice.machines,
        choice.acquired_cell,
        str(choice.gpus),
        choice.network,
        str(choice.batch_per_gpu),
        "" if choice.remedy == "none" else choice.remedy,
        units.format_share(choice.scaling_efficiency),
        f"{choice.effective_gpus:.1f}",
        units.format_seconds(choice.run_seconds),
        f"{dollars(choice.usd_per_run)} ({dollars(choice.usd_per_run_low)} – {dollars(choice.usd_per_run_high)})",
        dollars(choice.total_usd),
        "met" if choice.meets_goal else "missed",
    ]
