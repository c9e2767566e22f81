"""`gpuyard results`: list, show, add, and export stored measurements."""

from pathlib import Path
from typing import Annotated

import typer

from gpuyard.choices import ExportFormat
from gpuyard.choices import ResultKind as ResultKindName
from gpuyard.cli.output import JsonOption, check_output_directory, check_output_file
from gpuyard.cli.output import show as show_answer

app = typer.Typer(help="List, show, add, and export measurements.", no_args_is_help=True)

_WANDB_DIRECTORY = Path("wandb")
WorkloadOption = Annotated[
    str | None,
    typer.Option(metavar="WORKLOAD", help="Only measurements of this workload."),
]


KindOption = Annotated[
    ResultKindName,
    typer.Option(
        metavar="KIND",
        help="Kind of result",
    ),
]


@app.command("list")
def list_results(
    *,
    kind: KindOption = "train",
    workload: WorkloadOption = None,
    json_output: JsonOption = False,
) -> None:
    """List the measurements, oldest first.

    Example: gpuyard results list --workload spoken-digits-linear
    """
    from gpuyard.api import results

    show_answer(results.list(kind, workload=workload).answer, json_output=json_output)


@app.command()
def show(
    measurement_id: Annotated[
        str, typer.Argument(metavar="ID", help="The id of a measurement, or its first characters.")
    ],
    *,
    json_output: JsonOption = False,
) -> None:
    """Show one measurement with its provenance.

    Example: gpuyard results show 3f2a
    """
    from gpuyard.api import results

    show_answer(results.show(measurement_id).answer, json_output=json_output)


@app.command()
def add(
    log: Annotated[
        str,
        typer.Argument(
            metavar="LOG|HANDLE",
            help="The log of a training run, or a job like slurm://cluster/17.",
        ),
    ],
    *,
    workload: Annotated[
        str | None,
        typer.Option(metavar="WORKLOAD", help="The trained workload: a file or a catalog model."),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Store the steps that a training run reported with gpuyard.step() as a measurement.

    Example: gpuyard results add slurm-17.out --workload resnet50
    """
    from gpuyard.api import results

    show_answer(results.add(log, workload=workload).answer, json_output=json_output)


@app.command()
def export(
    *,
    export_format: Annotated[
        ExportFormat,
        typer.Option(
            "--as",
            metavar="NAME",
            help="JSON lines with everything, one flat CSV row per result, an MLflow server, files for wandb sync, "
            "or Prometheus text.",
        ),
    ] = "json",
    server: Annotated[
        str | None,
        typer.Option(metavar="URL", help="MLflow server URL (default: $MLFLOW_TRACKING_URI)."),
    ] = None,
    experiment: Annotated[
        str, typer.Option(metavar="NAME", help="MLflow experiment, or W&B project.")
    ] = "gpuyard",
    output: Annotated[
        Path | None,
        typer.Option(help="File to write (default: stdout).", callback=check_output_file),
    ] = None,
    output_dir: Annotated[
        Path,
        typer.Option(
            metavar="DIRECTORY",
            help="With --as wandb: directory to write to.",
            callback=check_output_directory,
        ),
    ] = _WANDB_DIRECTORY,
    kind: KindOption = "train",
    workload: WorkloadOption = None,
) -> None:
    """Write the measurements for another program.

    Example: gpuyard results export --kind job --as prometheus
    """
    import sys

    from gpuyard.api import results
    from gpuyard.report.terminal import print_line

    exported = results.export(
        export_format,
        kind=kind,
        workload=workload,
        output=output,
        output_dir=output_dir,
        server=server,
        experiment=experiment,
    )
    sys.stdout.write(exported.text)
    if exported.message:
        print_line(exported.message)
    if output is None:
        for path in exported.files:
            print_line(str(path), stderr=False)
