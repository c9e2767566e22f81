"""The stored measurements: `gy.results.list()`, `gy.results.show(id)`, `gy.results.add(log)`, `gy.results.export()`."""

import builtins
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuyard.api.result import Result, Row, wrap
from gpuyard.choices import ExportFormat
from gpuyard.errors import UserMistake
from gpuyard.files import results_file, write_text
from gpuyard.measure.job_runs.summary import add_new_runs, build_job_runs
from gpuyard.measure.job_runs.tables import JOB_RUNS
from gpuyard.measure.kind import ResultKind
from gpuyard.measure.registry import get_result_kind
from gpuyard.measure.store import ResultsStore
from gpuyard.report.answer import Answer, Sentence
from gpuyard.report.answers.results import record_answer, records_answer
from gpuyard.units import format_count

if TYPE_CHECKING:
    from gpuyard.reporting.windows import StepWindow
    from gpuyard.specs import Workload

WANDB_DIRECTORY = Path("wandb")


def list(kind: str = "train", *, workload: str | None = None) -> Result[Row]:
    """List the measurements of a kind, oldest first."""
    result_kind, records = _read_records(kind, workload)
    answer = records_answer(result_kind, records)
    if not records:
        of_workload = f" of {workload!r}" if workload else ""
        missing = (
            f"No results of kind {kind!r}{of_workload} in {results_file()}. "
            f"Measure some with: {result_kind.command}"
        )
        others = [f"{name} ({number:,})" for name, number in count().items() if name != kind]
        if others:
            missing += f". There are results of other kinds: {', '.join(others)}"
        answer = replace(answer, parts=[Sentence(missing)])
    return Result(answer, wrap(answer.document))


def count() -> dict[str, int]:
    """Return the number of measurements of each kind that has some."""
    return ResultsStore(results_file()).count_by_kind()


def show(measurement_id: str) -> Result[Row]:
    """Show one measurement with its provenance; the first characters of its id suffice."""
    return Result(record_answer(ResultsStore(results_file()).get(measurement_id)))


def add(log: str, *, workload: str | None = None) -> Result[Row]:
    """Store the steps that a training reported with `gpuyard.step()`; `log` is its log, or a job like local://17.

    Each row is a new measurement; runs that the store already has are left out.
    """
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
    new = add_new_runs(ResultsStore(results_file()), runs)
    answer = records_answer(JOB_RUNS, new)
    if old := len(runs) - len(new):
        old_runs = Sentence(f"Already in the store: {format_count(old, 'run')}")
        answer = Answer([*answer.parts, old_runs], answer.document)
    return Result(answer, wrap(answer.document))


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


@dataclass(frozen=True)
class Export:
    """Exported measurements: their text if it was not written, otherwise what was written where."""

    text: str = ""
    message: str = ""
    files: Sequence[Path] = ()


def export(
    export_format: ExportFormat = "json",
    *,
    kind: str = "train",
    workload: str | None = None,
    output: str | Path | None = None,
    output_dir: str | Path = WANDB_DIRECTORY,
    server: str | None = None,
    experiment: str = "gpuyard",
) -> Export:
    """Give the measurements to another program: as text, which `output` writes to a file, or to MLflow or W&B."""
    if server is not None and export_format != "mlflow":
        raise UserMistake("--server goes with --as=mlflow")
    output, output_dir = None if output is None else Path(output), Path(output_dir)
    if output is not None and export_format in ("mlflow", "wandb"):
        raise UserMistake(f"--as={export_format} does not write a file; leave out --output")
    if output_dir != WANDB_DIRECTORY and export_format != "wandb":
        raise UserMistake("--output-dir goes with --as=wandb; use --output FILE")
    result_kind, records = _read_records(kind, workload)
    if export_format == "csv" and result_kind.csv_layout is None:
        raise UserMistake(f"results of kind {kind!r} have no CSV form; use --as=json")
    count = format_count(len(records), "measurement")
    if export_format == "mlflow":
        return _export_to_mlflow(result_kind, records, server, experiment)
    if export_format == "wandb":
        from gpuyard.measure.export.runs import build_exported_runs
        from gpuyard.measure.export.wandb import write_wandb_runs

        runs = build_exported_runs(result_kind, records)
        written = write_wandb_runs(output_dir, runs, experiment)
        message = f"{count} written to {output_dir}; upload with: wandb sync"
        return Export(message=message, files=written)
    text = _format(result_kind, records, export_format)
    if output is None:
        return Export(text)
    write_text(output, text)
    return Export(message=f"{count} written to {output}", files=[output])


def _format(kind: ResultKind[Any], records: Sequence[Any], export_format: ExportFormat) -> str:
    from gpuyard.measure.export.prometheus import format_prometheus
    from gpuyard.measure.export.runs import build_exported_runs
    from gpuyard.measure.kind import to_json_lines

    if export_format == "json":
        return to_json_lines(records)
    if export_format == "csv":
        return kind.to_csv(records)
    return format_prometheus(build_exported_runs(kind, records))


def _export_to_mlflow(
    kind: ResultKind[Any], records: Sequence[Any], server: str | None, experiment: str
) -> Export:
    from gpuyard.measure.export.mlflow import SERVER_VARIABLE, MlflowServer
    from gpuyard.measure.export.runs import build_exported_runs

    url = server or os.environ.get(SERVER_VARIABLE)
    if not url:
        raise UserMistake(
            f"the MLflow server is not set: use --server URL, or set {SERVER_VARIABLE}"
        )
    mlflow_server = MlflowServer.from_url(url)
    added, existing = mlflow_server.export(build_exported_runs(kind, records), experiment)
    skipped = f"; {existing} already exist" if existing else ""
    count = format_count(added, "measurement")
    return Export(message=f"{count} written to {experiment!r} at {mlflow_server.url}{skipped}")


def _read_records(kind: str, workload: str | None) -> "tuple[ResultKind[Any], builtins.list[Any]]":
    result_kind = get_result_kind(kind)
    if workload is not None and not result_kind.has_workload:
        raise UserMistake(f"results of kind {kind!r} have no workload; leave out --workload")
    return result_kind, ResultsStore(results_file()).records(result_kind.record, workload)
