"""Measure training here, in a lab, on other hosts, or in Slurm: one sweep of a workload, or all sweeps of a file."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuyard.api.inputs import (
    override_precision,
    parse_exchange,
    read_counts,
    read_workload,
)
from gpuyard.api.result import Result, Row, wrap
from gpuyard.catalog.specfiles import read_sweep
from gpuyard.choices import Launcher
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.files import results_file, write_text
from gpuyard.measure.kind import to_json_lines
from gpuyard.measure.progress import ProgressCallback
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.training.matrix import Matrix, MatrixResult, plan_matrix, run_matrix
from gpuyard.measure.training.plan import plan_sweep
from gpuyard.measure.training.run import find_stored_keys, run_sweep
from gpuyard.measure.training.sweep import SweepEvent
from gpuyard.measure.training.tables import (
    build_matrix_table,
    build_plan_table,
    build_scaling_table,
    build_sweep_table,
)
from gpuyard.report.answers.results import content_answer
from gpuyard.run.places import LocalMachine, Place, find_allocation, open_lab, reach_hosts
from gpuyard.units import format_per_second

if TYPE_CHECKING:
    from gpuyard.specs import Workload


@contextlib.contextmanager
def open_place(
    lab: str | None,
    hosts: str | None,
    *,
    slurm: bool = False,
    ranks_per_node: int | None = None,
    planning: bool = False,
) -> Iterator[Place]:
    """Open the place that the options select; a temporary lab is removed at the end."""
    count = sum((lab is not None, hosts is not None, slurm))
    if count > 1:
        raise UserMistake("--lab, --hosts, and --slurm exclude each other")
    if ranks_per_node is not None and not count:
        raise UserMistake(
            "--ranks-per-node needs --lab, --hosts, or --slurm; on this machine, use --workers"
        )
    if lab is not None:
        with open_lab(lab, ranks_per_node or 1, planning=planning) as nodes:
            yield nodes
    elif hosts is not None:
        yield reach_hosts([name.strip() for name in hosts.split(",")], ranks_per_node)
    elif slurm:
        yield find_allocation(ranks_per_node)
    else:
        yield LocalMachine()


def train(
    workload: "str | Path | Workload",
    *,
    workers: str | int | Sequence[int] = (1, 2),
    batch: str | int | Sequence[int] | None = None,
    strategy: str = "ddp",
    time_per_point: float = 3.0,
    precision: str | None = None,
    compress: str | None = None,
    accumulate: int = 1,
    bucket_mb: float | None = None,
    local_sgd: int = 1,
    gpu: str | None = None,
    lab: str | None = None,
    hosts: str | None = None,
    slurm: bool = False,
    ranks_per_node: int | None = None,
    launcher: Launcher | None = None,
    fresh: bool = False,
    dry_run: bool = False,
    on_progress: ProgressCallback | None = None,
) -> Result[Row]:
    """Train for a few seconds at each worker count and batch size, and store the speed; each row is a measurement."""
    counts = read_counts(workers, "worker count")
    batches = read_counts(batch, "batch size") if batch is not None else None
    spec = override_precision(read_workload(workload), precision)
    remedy = parse_exchange(compress, accumulate, bucket_mb, local_sgd)
    store = ResultsStore(results_file())
    with open_place(
        lab, hosts, slurm=slurm, ranks_per_node=ranks_per_node, planning=dry_run
    ) as place:
        sweep = plan_sweep(
            spec,
            counts,
            batches or [spec.batch_per_gpu],
            strategy=strategy,
            seconds_per_point=time_per_point,
            remedy=remedy,
            gpu=gpu,
            place=place,
            launcher=launcher,
        )
        if dry_run:
            stored = set() if fresh else find_stored_keys(sweep, store)
            return Result(content_answer([build_plan_table(sweep, stored)], sweep.describe(stored)))
        measurements = run_sweep(
            sweep,
            store,
            on_event=lambda event: on_progress(event.progress) if on_progress else None,
            fresh=fresh,
        )
    documents = [measurement.as_json() for measurement in measurements]
    table = build_scaling_table(sweep.title, measurements)
    return Result(content_answer([table], documents), wrap(documents))


def sweep(
    file: str | Path,
    *,
    output: str | Path | None = None,
    svg: str | Path | None = None,
    fresh: bool = False,
    dry_run: bool = False,
    on_progress: ProgressCallback | None = None,
) -> Result[Row]:
    """Measure every combination of a sweep file; each row is a measurement, and `rejected` lists the other points.

    The measurements are also written to `output` as JSON lines, and a picture of how each workload scales to `svg`.
    """
    file = Path(file)
    spec = read_sweep(file)
    if svg is not None and 1 not in spec.nodes:
        raise UserMistake(f"{file}: --svg draws the scaling relative to one node; add 1 to 'nodes'")
    matrix = plan_matrix(spec, file.parent)
    store = ResultsStore(results_file())
    if dry_run:
        stored = set() if fresh else matrix.find_stored_keys(store)
        plan_table = build_matrix_table(matrix.name, matrix.sweeps, stored)
        return Result(content_answer([plan_table], matrix.describe(stored)))
    result = measure_matrix(matrix, store, fresh=fresh, on_progress=on_progress)
    try:
        if output is not None:
            write_text(Path(output), to_json_lines(result.measurements))
        if svg is not None:
            from gpuyard.report.scaling import draw_scaling

            write_text(Path(svg), draw_scaling(result.measurements, matrix.name))
    except GpuyardError as error:
        raise GpuyardError(
            f"{error}; all measurements are stored in {store.path}: run it again, nothing is measured twice"
        ) from error
    table = build_sweep_table(matrix.name, result.measurements)
    document = _describe_result(matrix, result)
    return Result(content_answer([table], document), wrap(document["measurements"]))


def measure_matrix(
    matrix: Matrix, store: ResultsStore, *, fresh: bool, on_progress: ProgressCallback | None
) -> MatrixResult:
    """Measure the points that the store lacks, and report the speed of each."""

    def report(event: SweepEvent) -> None:
        m, message = event.measurement, ""
        if event.state == "finished" and m is not None:
            message = (
                f"{event.progress.description}: {format_per_second(m.samples_per_second)} samples/s"
            )
        elif event.state == "rejected" and m is not None:
            message = f"{event.progress.description}: rejected: {m.doubt}"
        if on_progress is not None:
            on_progress(replace(event.progress, message=message))

    return run_matrix(matrix, store, on_event=report, fresh=fresh)


def _describe_result(matrix: Matrix, result: MatrixResult) -> dict[str, Any]:
    return {
        "name": matrix.name,
        "measurements": [m.model_dump(mode="json") for m in result.measurements],
        "rejected": [
            {
                "workload": sweep.workload.name,
                "remedy": sweep.remedy.label,
                "workers": point.workers,
                "batch_per_worker": point.batch_per_worker,
                "reason": reason,
            }
            for sweep, point, reason in result.rejected
        ],
    }
