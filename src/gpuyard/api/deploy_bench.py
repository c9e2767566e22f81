"""Measure how training scales on the machines of a deployment, and compare it with the prediction."""

from collections.abc import Sequence
from pathlib import Path

from gpuyard.api.inputs import load_calibration, read_counts
from gpuyard.api.result import Result, Row, wrap
from gpuyard.api.training_bench import measure_matrix
from gpuyard.deploy.access.remote import require_hosts
from gpuyard.deploy.bench.comparison import compare
from gpuyard.deploy.bench.data import create_images
from gpuyard.deploy.bench.plan import BenchOptions, Layout, plan_bench
from gpuyard.deploy.deployment import load_deployment
from gpuyard.errors import UserMistake
from gpuyard.files import results_file
from gpuyard.measure.progress import ProgressCallback, ProgressUpdate
from gpuyard.measure.store import ResultsStore
from gpuyard.report.answers.deploy_bench import bench_answer, bench_plan_answer
from gpuyard.units import parse_rate


def bench_deployment(
    file: Path,
    *,
    workload: str = "resnet50",
    batch: str | int | Sequence[int] | None = None,
    nodes: str | int | Sequence[int] | None = None,
    shapes: str | None = None,
    strategy: str = "ddp",
    link: str | None = None,
    dataset: str | None = None,
    images: int = 2048,
    gpu: str | None = None,
    time_per_point: float = 8.0,
    fresh: bool = False,
    calibration: str | None = None,
    dry_run: bool = False,
    on_progress: ProgressCallback | None = None,
) -> Result[Row]:
    """Measure each batch size and link rate on numbers of machines; each row is a run next to its prediction."""
    if shapes is not None and nodes is not None:
        raise UserMistake("give --shapes or --nodes, not both")
    options = BenchOptions(
        workload=workload,
        batches=None if batch is None else read_counts(batch, "batch size"),
        nodes=None if nodes is None else read_counts(nodes, "number of machines"),
        rates=None if link is None else [parse_rate(rate.strip()) for rate in link.split(",")],
        data=dataset,
        gpu=gpu,
        seconds_per_point=time_per_point,
        strategies=list(dict.fromkeys(name.strip() for name in strategy.split(","))),
        layouts=None if shapes is None else [Layout.parse(text) for text in shapes.split(",")],
    )
    constants = load_calibration(calibration)
    loaded = load_deployment(file)
    plan = plan_bench(loaded, require_hosts(loaded, file), options, query_gpus=not dry_run)
    store = ResultsStore(results_file())
    if dry_run:
        stored = set() if fresh else plan.matrix.find_stored_keys(store)
        return Result(bench_plan_answer(plan, stored))
    with loaded.state.hold():
        if plan.images_folder is not None:
            if on_progress is not None:
                task = f"creating {images:,} images in {plan.images_folder}"
                on_progress(ProgressUpdate(task))
            create_images(plan, images)
        outcome = measure_matrix(plan.matrix, store, fresh=fresh, on_progress=on_progress)
    answer = bench_answer(plan, compare(loaded, plan, outcome.measurements, constants), outcome)
    return Result(answer, wrap(answer.document["runs"]))
