"""`gpuyard plan`: find the machines to rent or buy for a goal."""

from pathlib import Path
from typing import Annotated

import typer

from gpuyard.cli.options import CalibrationOption, PowerCapOption, PrecisionsOption, ResultsOption
from gpuyard.cli.output import JsonOption, check_output_file, show, show_status, write_verbatim
from gpuyard.errors import UserMistake


def plan(
    file: Annotated[
        Path | None, typer.Argument(help="Plan file (*.plan.yaml).", metavar="FILE")
    ] = None,
    *,
    budget: Annotated[
        str | None,
        typer.Option(metavar="PRICE", help="Without FILE: total over the horizon, e.g. '$60000'."),
    ] = None,
    researchers: Annotated[
        int | None, typer.Option(min=1, help="Without FILE: people who train models.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="WORKLOAD", help="Without FILE: workload file or catalog model to train."
        ),
    ] = None,
    runs_per_month: Annotated[
        float | None, typer.Option(help="Without FILE: training runs per month.")
    ] = None,
    time_per_run: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Without FILE: longest time of a run, e.g. 12h."),
    ] = None,
    samples: Annotated[
        int | None, typer.Option(min=1, help="Without FILE: samples of an epoch.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Without FILE: epochs of a run.")
    ] = None,
    tokens: Annotated[
        str | None,
        typer.Option(
            metavar="COUNT", help="Without FILE: tokens of a run of a large model, e.g. 20B."
        ),
    ] = None,
    horizon: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Without FILE: planning horizon (default: 3 years)."),
    ] = None,
    tariff: Annotated[
        str | None,
        typer.Option(
            metavar="PRICE", help="Without FILE: electricity price, e.g. $0.12/kWh (default: US)."
        ),
    ] = None,
    why: Annotated[
        bool,
        typer.Option("--why", help="Add the reasons, all good options, and the assumptions."),
    ] = False,
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
        str | None, typer.Option(metavar="NAME", help="Project whose leases count, with --usage.")
    ] = None,
    precision: PrecisionsOption = None,
    power_cap: PowerCapOption = None,
    calibration: CalibrationOption = None,
    results: ResultsOption = None,
    deploy: Annotated[
        bool,
        typer.Option("--deploy", help="Print only the choice, as a *.deployment.yaml."),
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Find the machines to rent or buy for a goal, and explain the choice.

    Searches offers, GPUs, nodes, networks, batches, remedies, precisions, and layouts of large models.

    Example: gpuyard plan --budget '$60000' --researchers 6 --model resnet50
    """
    from gpuyard.api.plan import plan as make_plan

    if deploy and (json_output or html is not None):
        raise UserMistake("--deploy prints only a deployment; leave out --json and --html")
    with show_status("searching"):
        result = make_plan(
            file,
            budget=budget,
            researchers=researchers,
            model=model,
            runs_per_month=runs_per_month,
            time_per_run=time_per_run,
            samples=samples,
            epochs=epochs,
            tokens=tokens,
            horizon=horizon,
            tariff=tariff,
            site=site,
            usage=usage,
            project=project,
            precision=precision,
            power_cap=power_cap,
            calibration=calibration,
            results=results,
            why=why,
            chart=html is not None,
        )
    if deploy:
        write_verbatim(result.deployment())
        return
    show(result.answer, json_output=json_output, html=html)
