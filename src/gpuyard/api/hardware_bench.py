"""Measure hardware: collectives over real links, this machine's own links, and storage. Each stores a record."""

from collections.abc import Callable, Sequence
from pathlib import Path

from gpuyard.api.inputs import read_quantity
from gpuyard.api.result import Result, Row, wrap
from gpuyard.api.training_bench import open_place
from gpuyard.files import results_file
from gpuyard.measure.bench import AnyPlan, measure
from gpuyard.measure.collectives.plan import OPERATIONS, parse_sizes, plan_collectives
from gpuyard.measure.collectives.run import run_collectives
from gpuyard.measure.kind import AnyRecord
from gpuyard.measure.links.plan import plan_links
from gpuyard.measure.links.run import run_links
from gpuyard.measure.progress import ProgressCallback
from gpuyard.measure.storage.plan import plan_storage
from gpuyard.measure.storage.run import run_storage
from gpuyard.measure.store import ResultsStore
from gpuyard.report.answers.results import plan_answer, record_answer
from gpuyard.units import parse_bytes, parse_rate

ALL = "all"


def collectives(
    operations: str | Sequence[str] = "all_reduce",
    *,
    size: str = "1KB..16MB",
    factor: int = 4,
    workers: int | None = None,
    lab: str | None = None,
    hosts: str | None = None,
    slurm: bool = False,
    ranks_per_node: int | None = None,
    link: str | float | None = None,
    backend: str | None = None,
    repeats: int = 5,
    dry_run: bool = False,
    on_progress: ProgressCallback | None = None,
) -> Result[Row]:
    """Time collectives by size, and check their results; each row is an operation at a size."""
    named = operations.split(",") if isinstance(operations, str) else operations
    sizes = parse_sizes(size, factor)
    rate = None if link is None else read_quantity(link, parse_rate)
    with open_place(
        lab, hosts, slurm=slurm, ranks_per_node=ranks_per_node, planning=dry_run
    ) as place:
        plan = plan_collectives(
            place,
            sum(place.ranks_by_node) if workers is None else workers,
            OPERATIONS if operations == ALL else [name.strip() for name in named],
            sizes,
            backend=backend,
            link_bytes_per_second=rate,
            repeats=repeats,
        )
        return measure_plan(plan, run_collectives, dry_run=dry_run, on_progress=on_progress)


def links(
    size: str | float = "256 MB",
    *,
    repeats: int = 5,
    dry_run: bool = False,
    on_progress: ProgressCallback | None = None,
) -> Result[Row]:
    """Measure this machine's links with copies of this size, and compare them with the model."""
    plan = plan_links(int(read_quantity(size, parse_bytes)), repeats)
    return measure_plan(plan, run_links, dry_run=dry_run, on_progress=on_progress)


def storage(
    path: str | Path,
    *,
    model: str = "resnet50",
    gpu: str = "h100-sxm5-80gb",
    gpus: int = 8,
    batch: int | None = None,
    dataset: str | Path | None = None,
    size: str | float = "1 GB",
    time_per_point: float = 10.0,
    readers: int = 4,
    dry_run: bool = False,
    on_progress: ProgressCallback | None = None,
) -> Result[Row]:
    """Find how many GPUs the storage of a directory keeps busy, by MLPerf Storage's method."""
    plan = plan_storage(
        Path(path),
        model=model,
        gpu=gpu,
        count=gpus,
        batch=batch,
        data=None if dataset is None else Path(dataset),
        seconds=time_per_point,
        readers=readers,
        own_bytes=int(read_quantity(size, parse_bytes)),
    )
    return measure_plan(plan, run_storage, dry_run=dry_run, on_progress=on_progress)


def measure_plan(
    plan: AnyPlan,
    run: Callable[[AnyPlan, ProgressCallback], AnyRecord],
    *,
    dry_run: bool,
    on_progress: ProgressCallback | None,
    timed: bool = True,
) -> Result[Row]:
    """Run the plan of a bench and store its record; a dry run returns the plan."""
    if dry_run:
        return Result(plan_answer(plan))
    report = on_progress or (lambda _progress: None)
    record = measure(plan, run, ResultsStore(results_file()), report, timed=timed)
    answer = record_answer(record)
    return Result(answer, wrap(answer.document.get("results", [])))
