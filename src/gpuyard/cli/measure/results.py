"""`gpuyard results`: what was measured on this machine."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from gpuyard.cli.measure.bench.running import results_store
from gpuyard.cli.output import JsonOption, writable
from gpuyard.cli.output import show as show_answer
from gpuyard.errors import UserMistake

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuyard.measure.export.runs import ExportedRun
    from gpuyard.measure.kind import ResultKind
    from gpuyard.measure.record import Record
    from gpuyard.specs import Workload
    from gpuyard.steps.windows import StepWindow

app = typer.Typer(help="Look at what was measured.", no_args_is_help=True)

WorkloadOption = Annotated[str | None, typer.Option(help="Only measurements of this workload.")]


class ExportFormat(StrEnum):
    """JSON lines hold everything; CSV is one flat row a measurement."""

    JSON = "json"
    CSV = "csv"


class Tracker(StrEnum):
    """What teams look at."""

    MLFLOW = "mlflow"
    WANDB = "wandb"
    PROMETHEUS = "prometheus"


def _kinds() -> list[str]:
    from gpuyard.measure.registry import RESULT_KINDS

    return list(RESULT_KINDS)


KindOption = Annotated[
    str,
    typer.Option(
        metavar="KIND",
        autocompletion=_kinds,
        help="The bench that measured it, job, convergence (of gpuyard train) or rejected.",
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
    from gpuyard.report.answers.results import records_answer
    from gpuyard.report.terminal import say

    found, records = _records(kind, workload)
    show_answer(records_answer(found, records), json_output=json_output)
    if not records and not json_output:
        of_workload = f" of {workload!r}" if workload else ""
        where = results_store().path
        say(f"No results of kind {kind!r}{of_workload} in {where}. They come from: {found.made_by}")


@app.command()
def show(
    measurement_id: Annotated[
        str, typer.Argument(metavar="ID", help="The id of a measurement, or how it starts.")
    ],
    *,
    json_output: JsonOption = False,
) -> None:
    """Show one measurement with its provenance.

    Example: gpuyard results show 3f2a
    """
    from gpuyard.report.answers.results import record_answer

    show_answer(record_answer(results_store().get(measurement_id)), json_output=json_output)


@app.command()
def add(
    log: Annotated[
        str,
        typer.Argument(
            metavar="LOG|HANDLE",
            help="The log of a training run, or a job, like slurm://cluster/17.",
        ),
    ],
    *,
    workload: Annotated[
        str | None,
        typer.Option(metavar="WORKLOAD", help="What it trained: a file or a catalog model."),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Store what a training run reported with gpuyard.step() as a measurement.

    Example: gpuyard results add slurm-17.out --workload resnet50
    """
    from gpuyard.measure.job_runs.summary import job_runs, keep
    from gpuyard.measure.job_runs.tables import JOB_RUNS
    from gpuyard.report.answers.results import records_answer
    from gpuyard.report.terminal import say
    from gpuyard.units import counted

    told = _of_job(log, workload) if "://" in log else _of_log(Path(log), workload)
    if not told.windows:
        raise UserMistake(
            f"{log}: there is no report of gpuyard.step() in it; train with GPUYARD_REPORT=stdout to get some"
        )
    runs = job_runs(told.windows, told.workload, job=told.job, handle=told.handle)
    if not runs:
        raise UserMistake(f"{log}: the training ended before it had warmed up")
    new = keep(results_store(), runs)
    show_answer(records_answer(JOB_RUNS, new), json_output=json_output)
    old = len(runs) - len(new)
    if old:
        say(f"Already in the store: {counted(old, 'run')}", stderr=json_output)


class _Told(NamedTuple):
    """What a training reported, and of which job."""

    windows: "Sequence[StepWindow]"
    workload: "Workload"
    job: str = ""
    handle: str = ""


def _of_log(log: Path, workload: str | None) -> _Told:
    from gpuyard.catalog.specfiles import read_workload
    from gpuyard.steps.windows import read_log

    if workload is None:
        raise UserMistake("what did it train? Name it with --workload")
    return _Told(workload=read_workload(workload), windows=read_log(log))


def _of_job(text: str, workload: str | None) -> _Told:
    from gpuyard.catalog.specfiles import read_workload
    from gpuyard.jobs.engines.base import engine
    from gpuyard.jobs.job import Handle

    handle = Handle.parse(text)
    runs_it = engine(handle.engine)
    job = runs_it.job(handle)
    trained = workload or job.spec.workload
    if trained is None:
        raise UserMistake(f"{handle} does not say what it trains; name it with --workload")
    return _Told(runs_it.reports(handle), read_workload(trained), job.uuid, str(handle))


@app.command()
def export(
    *,
    export_format: Annotated[
        ExportFormat,
        typer.Option(
            "--format", metavar="json|csv", help="JSON lines with everything, or flat CSV rows."
        ),
    ] = ExportFormat.JSON,
    to: Annotated[
        Tracker | None,
        typer.Option(
            metavar="mlflow|wandb|prometheus",
            help="For an MLflow server, wandb sync, or Prometheus as text.",
        ),
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Of MLflow (default: $MLFLOW_TRACKING_URI)."),
    ] = None,
    experiment: Annotated[
        str, typer.Option(metavar="NAME", help="In MLflow; in W&B the project.")
    ] = "gpuyard",
    output: Annotated[
        Path | None,
        typer.Option(
            help="File to write (default: stdout); of W&B a directory (default: wandb).",
            callback=writable,
        ),
    ] = None,
    kind: KindOption = "train",
    workload: WorkloadOption = None,
) -> None:
    """Write the measurements for another program.

    Example: gpuyard results export --kind job --to prometheus
    """
    from gpuyard.measure import to_json_lines

    if server is not None and to is not Tracker.MLFLOW:
        raise UserMistake("--server goes with --to mlflow")
    found, records = _records(kind, workload)
    if to is not None:
        if export_format is not ExportFormat.JSON:
            raise UserMistake("--to has a format of its own; leave out --format")
        from gpuyard.measure.export.runs import exported_runs

        runs = exported_runs(found, records)
        if to is Tracker.MLFLOW:
            if output is not None:
                raise UserMistake("--to mlflow writes no file; leave out --output")
            _to_mlflow(runs, server, experiment)
        elif to is Tracker.WANDB:
            _to_wandb(runs, output or Path("wandb"), experiment)
        else:
            from gpuyard.measure.export.prometheus import prometheus_text

            _write(prometheus_text(runs), len(runs), output)
        return
    if export_format is ExportFormat.CSV and found.flat is None:
        raise UserMistake(f"results of kind {kind!r} have no flat rows: export them as json")
    text = found.to_csv(records) if export_format is ExportFormat.CSV else to_json_lines(records)
    _write(text, len(records), output)


def _write(text: str, count: int, output: Path | None) -> None:
    import sys

    from gpuyard.files import write_text
    from gpuyard.report.terminal import say
    from gpuyard.units import counted

    if output is None:
        sys.stdout.write(text)
        return
    write_text(output, text)
    say(f"{counted(count, 'measurement')} written to {output}")


def _to_mlflow(runs: "list[ExportedRun]", server: str | None, experiment: str) -> None:
    import os

    from gpuyard.measure.export.mlflow import ADDRESS_VARIABLE, MlflowServer
    from gpuyard.report.terminal import say
    from gpuyard.units import counted

    address = server or os.environ.get(ADDRESS_VARIABLE)
    if not address:
        raise UserMistake(f"which MLflow? Name it with --server URL, or set {ADDRESS_VARIABLE}")
    mlflow = MlflowServer(address)
    added, old = mlflow.export(runs, experiment)
    there = f"; already there: {old}" if old else ""
    say(f"{counted(added, 'measurement')} written to {experiment!r} at {mlflow.address}{there}")


def _to_wandb(runs: "list[ExportedRun]", directory: Path, project: str) -> None:
    from gpuyard.measure.export.wandb import write_wandb_runs
    from gpuyard.report.terminal import say
    from gpuyard.units import counted

    written = write_wandb_runs(directory, runs, project)
    say(f"{counted(len(written), 'measurement')} written to {directory}; upload with: wandb sync")
    for place in written:
        say(str(place), stderr=False)


def _records(kind: str, workload: str | None) -> "tuple[ResultKind[Record], list[Record]]":
    from gpuyard.measure.registry import result_kind

    found = result_kind(kind)
    if workload is not None and not found.of_workloads:
        raise UserMistake(f"results of kind {kind!r} have no workload; leave out --workload")
    return found, results_store().records(found.record, workload)
