"""`gpuyard plan`: which machines to get for a goal, and why."""

from pathlib import Path
from typing import Annotated

import typer

from gpuyard.cli.options import (
    CalibrationOption,
    PrecisionsOption,
    ResultsOption,
    chosen_calibration,
    chosen_results,
    parse_precisions,
)
from gpuyard.cli.output import JsonOption, show, working, writable, write_exactly
from gpuyard.errors import UserMistake


def plan(
    file: Annotated[Path, typer.Argument(help="A *.plan.yaml.", metavar="FILE")],
    *,
    html: Annotated[
        Path | None,
        typer.Option(
            help="Also write an HTML page with a chart of cost against time.", callback=writable
        ),
    ] = None,
    site: Annotated[
        Path | None,
        typer.Option(
            help="A *.site.yaml, the site for bought machines, instead of the plan's.",
            metavar="FILE",
        ),
    ] = None,
    usage: Annotated[
        Path | None,
        typer.Option(
            help="Output of `gpuyard usage --json`: take runs per month from it, not from the plan.",
            metavar="FILE",
        ),
    ] = None,
    project: Annotated[
        str | None, typer.Option(help="With --usage: only the leases of this project.")
    ] = None,
    precision: PrecisionsOption = None,
    calibration: CalibrationOption = None,
    results: ResultsOption = None,
    deploy: Annotated[
        bool,
        typer.Option("--deploy", help="Print the choice as a *.deployment.yaml, and nothing else."),
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Say which machines to rent or buy for a goal, and why.

    Searches offers, GPUs, nodes, networks, batches, remedies and precisions.

    Example: gpuyard plan examples/resnet50.plan.yaml
    """
    from gpuyard.catalog.specfiles import read_plan, read_site
    from gpuyard.planner import make_plan
    from gpuyard.report.answers.plan import plan_answer

    precisions = parse_precisions(precision) if precision is not None else None
    asked, constants = read_plan(file), chosen_calibration(calibration)
    if precisions is not None:
        tried = asked.search.model_copy(update={"precision": precisions})
        asked = asked.model_copy(update={"search": tried})
    if deploy and (json_output or html is not None):
        raise UserMistake("--deploy prints a deployment alone: leave out --json and --html")
    if project is not None and usage is None:
        raise UserMistake("--project goes with --usage")
    if usage is not None:
        from gpuyard.economics.usage import read_usage, runs_per_month
        from gpuyard.files import read_text

        used = read_usage(read_text(usage), str(usage))
        runs = runs_per_month(used, str(usage), project)
        asked = asked.model_copy(update={"runs_per_month": runs})
    bought_at = None if site is None else read_site(site)
    stored = chosen_results(results)
    with working("searching"):
        result = make_plan(
            asked, file.parent, constants, bought_at, figures=stored.added_to if stored else None
        )
    if deploy:
        from gpuyard.deploy.from_plan import deployment_text

        write_exactly(deployment_text(result))
        return
    show(plan_answer(result), json_output=json_output, html=html)
