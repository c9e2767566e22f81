"""`gpuyard plan`: find the machines to rent or buy for a goal."""

from pathlib import Path
from typing import Annotated

import typer

from gpuyard.api.inputs import load_calibration, load_results, parse_precisions
from gpuyard.cli.options import CalibrationOption, PrecisionsOption, ResultsOption
from gpuyard.cli.output import JsonOption, check_output_file, show, show_status, write_verbatim
from gpuyard.errors import UserMistake


def plan(
    file: Annotated[Path, typer.Argument(help="Plan file (*.plan.yaml).", metavar="FILE")],
    *,
    html: Annotated[
        Path | None,
        typer.Option(
            help="HTML page to write, with a chart of cost against time.",
            callback=check_output_file,
        ),
    ] = None,
    site: Annotated[
        Path | None,
        typer.Option(
            help="Site file (*.site.yaml) for bought machines, instead of the plan's.",
            metavar="FILE",
        ),
    ] = None,
    usage: Annotated[
        Path | None,
        typer.Option(
            help="Output of `gpuyard usage --json`, whose runs per month replace the plan's.",
            metavar="FILE",
        ),
    ] = None,
    project: Annotated[
        str | None, typer.Option(help="Project whose leases count, with --usage.")
    ] = None,
    precision: PrecisionsOption = None,
    calibration: CalibrationOption = None,
    results: ResultsOption = None,
    deploy: Annotated[
        bool,
        typer.Option("--deploy", help="Print only the choice, as a *.deployment.yaml."),
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Find the machines to rent or buy for a goal, and explain the choice.

    Searches offers, GPUs, nodes, networks, batches, remedies, and precisions.

    Example: gpuyard plan examples/resnet50.plan.yaml
    """
    from gpuyard.catalog.specfiles import read_plan, read_site
    from gpuyard.planner import make_plan
    from gpuyard.report.answers.plan import plan_answer

    precisions = parse_precisions(precision) if precision is not None else None
    spec, constants = read_plan(file), load_calibration(calibration)
    if precisions is not None:
        search = spec.search.model_copy(update={"precision": precisions})
        spec = spec.model_copy(update={"search": search})
    if deploy and (json_output or html is not None):
        raise UserMistake("--deploy prints only a deployment; leave out --json and --html")
    if project is not None and usage is None:
        raise UserMistake("--project needs --usage")
    if usage is not None:
        from gpuyard.economics.usage import read_usage, runs_per_month
        from gpuyard.files import read_text

        leases = read_usage(read_text(usage), str(usage))
        runs = runs_per_month(leases, str(usage), project)
        spec = spec.model_copy(update={"runs_per_month": runs})
    site_spec = None if site is None else read_site(site)
    stored = load_results(results)
    with show_status("searching"):
        result = make_plan(
            spec, file.parent, constants, site_spec, figures=stored.add_figures if stored else None
        )
    if deploy:
        from gpuyard.deploy.from_plan import render_deployment

        write_verbatim(render_deployment(result))
        return
    show(plan_answer(result, with_chart=html is not None), json_output=json_output, html=html)
