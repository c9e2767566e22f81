"""`gpuyard results`: list, show, add, and export stored measurements."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from gpuyard.choices import ExportFormat
from gpuyard.choices import ResultKind as ResultKindName
from gpuyard.cli.measure.bench.running import results_store
from gpuyard.cli.output import JsonOption, check_output_directory, check_output_file
from gpuyard.cli.output import show as show_answer
from gpuyard.errors import UserMistake

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuyard.measure.export.runs import ExportedRun
    from gpuyard.measure.kind import ResultKind
    from gpuyard.measure.record import Record
    from gpuyard.reporting.windows import StepWindow
    from gpuyard.specs import Workload

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
        help="Name of a bench, job, convergence (from gpuyard train), or rejected.",
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
    from gpuyard.measure.registry import get_result_kind
    from gpuyard.report.terminal import print_line

    records = results.list(kind, workload=workload)
    show_answer(records.answer, json_output=json_output)
    if not records.rows and not json_output:
        of_workload = f" of {workload!r}" if workload else ""
        print_line(
            f"No results of kind {kind!r}{of_workload} in {results_store().path}. "
            f"Measure some with: {get_result_kind(kind).command}"
        )


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
    from gpuyard.measure.job_runs.summary import add_new_runs, build_job_runs
    from gpuyard.measure.job_runs.tables import JOB_RUNS
    from gpuyard.report.answers.results import records_answer
    from gpuyard.report.terminal import print_line
    from gpuyard.units import format_count

    reported = _read_job(log, workload) if "://" in log else _read_log(Path(log), workload)
    if not reported.windows:
        raise UserMistake(
            f"{log} has no reports of gpuyard.step(); set GPUYARD_REPORT=stdout while training"
        )
    runs = build_job_runs(
        reported.windows, reported.workload, job=reported.job, handle=reported.handle
    )
    if not runs:
        raise UserMistake(f"{log}: the training stopped before its warm-up was over")
    new = add_new_runs(results_store(), runs)
    show_answer(records_answer(JOB_RUNS, new), json_output=json_output)
    old = len(runs) - len(new)
    if old:
        print_line(f"Already in the store: {format_count(old, 'run')}", stderr=json_output)


class _ReportedSteps(NamedTuple):
    """The steps that a training run reported, its workload, and its job."""

    windows: "Sequence[StepWindow]"
    workload: "Workload"
    job: str = ""
    handle: str = ""


def _read_log(log: Path, workload: str | None) -> _ReportedSteps:
    from gpuyard.catalog.specfiles import read_workload
    from gpuyard.reporting.windows import read_log

    if workload is None:
        raise UserMistake(f"{log} does not name its workload; pass it with --workload")
    return _ReportedSteps(workload=read_workload(workload), windows=read_log(log))


def _read_job(text: str, workload: str | None) -> _ReportedSteps:
    from gpuyard.catalog.specfiles import read_workload
    from gpuyard.jobs.engines.base import load_engine
    from gpuyard.jobs.job import Handle

    handle = Handle.parse(text)
    engine = load_engine(handle.engine)
    job = engine.job(handle)
    trained = workload or job.spec.workload
    if trained is None:
        raise UserMistake(f"{handle} does not name its workload; pass it with --workload")
    return _ReportedSteps(engine.reports(handle), read_workload(trained), job.uuid, str(handle))


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
    from gpuyard.measure import to_json_lines

    if server is not None and export_format != "mlflow":
        raise UserMistake("--server goes with --as mlflow")
    if output is not None and export_format in ("mlflow", "wandb"):
        raise UserMistake(f"--as {export_format} does not write a file; leave out --output")
    if output_dir != _WANDB_DIRECTORY and export_format != "wandb":
        raise UserMistake("--output-dir goes with --as wandb; use --output FILE")
    result_kind, records = _read_records(kind, workload)
    if export_format == "json":
        _write(to_json_lines(records), len(records), output)
        return
    if export_format == "csv":
        if result_kind.csv_layout is None:
            raise UserMistake(f"results of kind {kind!r} have no CSV form; use --as json")
        _write(result_kind.to_csv(records), len(records), output)
        return
    from gpuyard.measure.export.runs import build_exported_runs

    runs = build_exported_runs(result_kind, records)
    if export_format == "mlflow":
        _export_to_mlflow(runs, server, experiment)
    elif export_format == "wandb":
        _export_to_wandb(runs, output_dir, experiment)
    else:
        from gpuyard.measure.export.prometheus import format_prometheus

        _write(format_prometheus(runs), len(runs), output)


def _write(text: str, count: int, output: Path | None) -> None:
    import sys

    from gpuyard.files import write_text
    from gpuyard.report.terminal import print_line
    from gpuyard.units import format_count

    if output is None:
        sys.stdout.write(text)
        return
    write_text(output, text)
    print_line(f"{format_count(count, 'measurement')} written to {output}")


def _export_to_mlflow(runs: "list[ExportedRun]", server: str | None, experiment: str) -> None:
    import os

    from gpuyard.measure.export.mlflow import SERVER_VARIABLE, MlflowServer
    from gpuyard.report.terminal import print_line
    from gpuyard.units import format_count

    url = server or os.environ.get(SERVER_VARIABLE)
    if not url:
        raise UserMistake(
            f"the MLflow server is not set: use --server URL, or set {SERVER_VARIABLE}"
        )
    mlflow_server = MlflowServer.from_url(url)
    added, existing = mlflow_server.export(runs, experiment)
    skipped = f"; {existing} already exist" if existing else ""
    print_line(
        f"{format_count(added, 'measurement')} written to {experiment!r} at {mlflow_server.url}{skipped}"
    )


def _export_to_wandb(runs: "list[ExportedRun]", directory: Path, project: str) -> None:
    from gpuyard.measure.export.wandb import write_wandb_runs
    from gpuyard.report.terminal import print_line
    from gpuyard.units import format_count

    written = write_wandb_runs(directory, runs, project)
    print_line(
        f"{format_count(len(written), 'measurement')} written to {directory}; upload with: wandb sync"
    )
    for path in written:
        print_line(str(path), stderr=False)


def _read_records(kind: str, workload: str | None) -> "tuple[ResultKind[Record], list[Record]]":
    from gpuyard.measure.registry import get_result_kind

    result_kind = get_result_kind(kind)
    if workload is not None and not result_kind.has_workload:
        raise UserMistake(f"results of kind {kind!r} have no workload; leave out --workload")
    return result_kind, results_store().records(result_kind.record, workload)
