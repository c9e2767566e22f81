"""Train a workload until it has learned its training data."""

from pathlib import Path
from typing import TYPE_CHECKING

from gpuyard.api.hardware_bench import measure_plan
from gpuyard.api.inputs import override_precision, read_quantity, read_workload
from gpuyard.api.result import Result, Row
from gpuyard.measure.convergence.plan import plan_convergence
from gpuyard.measure.convergence.run import run_convergence
from gpuyard.measure.progress import ProgressCallback
from gpuyard.units import parse_share

if TYPE_CHECKING:
    from gpuyard.specs import Workload


def train(
    workload: "str | Path | Workload",
    *,
    workers: int = 1,
    batch: int | None = None,
    precision: str | None = None,
    epochs: int = 20,
    accuracy: str | float = "99%",
    seed: int = 0,
    checkpoint: str | Path | None = None,
    fresh: bool = False,
    dry_run: bool = False,
    on_progress: ProgressCallback | None = None,
) -> Result[Row]:
    """Train up to an accuracy on the training data; `reached` says whether it got there, and a stopped run resumes."""
    plan = plan_convergence(
        override_precision(read_workload(workload), precision),
        workers=workers,
        batch_per_worker=batch,
        epochs=epochs,
        target_accuracy=read_quantity(accuracy, parse_share),
        seed=seed,
        checkpoint=None if checkpoint is None else Path(checkpoint),
        fresh=fresh,
    )
    # An accuracy does not depend on other load, so training neither waits for measurements nor prevents them.
    return measure_plan(
        plan, run_convergence, dry_run=dry_run, on_progress=on_progress, timed=False
    )
