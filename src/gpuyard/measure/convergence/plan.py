"""Plans a training run to a target accuracy, and checks it before a process starts."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuyard import files
from gpuyard.errors import MissingRequirement, UserMistake
from gpuyard.files import check_writable
from gpuyard.measure.convergence import recipe
from gpuyard.measure.convergence.checkpoint import default_directory
from gpuyard.measure.record import Testbed, discover_testbed, format_precision_suffix, hash_key
from gpuyard.measure.training.strategies import NO_TF32_MESSAGE
from gpuyard.run.places import LocalMachine
from gpuyard.run.protocol import RankDevice
from gpuyard.specs import Precision, Workload
from gpuyard.table import Table
from gpuyard.units import format_count, format_share
from gpuyard.workloads.code_trust import code_digest, user_code
from gpuyard.workloads.resolve import require_torch

SAMPLES_PER_UPDATE = 50


@dataclass(frozen=True)
class ConvergencePlan:
    """A planned training run to a target accuracy."""

    workload: Workload
    device: RankDevice
    cores_by_worker: tuple[tuple[int, ...], ...]
    batch_per_worker: int
    epochs: int
    target_accuracy: float
    seed: int
    checkpoint: Path
    fresh: bool
    identity: str
    testbed: Testbed

    def describe(self) -> dict[str, Any]:
        """Return the JSON value that `--dry-run` prints."""
        return {
            "workload": self.workload.name,
            "device": self.device,
            "workers": len(self.cores_by_worker),
            "batch_per_worker": self.batch_per_worker,
            "epochs": self.epochs,
            "target_accuracy": self.target_accuracy,
            "seed": self.seed,
            "precision": self.workload.precision,
            "checkpoint": str(self.checkpoint),
        }

    def build_table(self) -> Table:
        """Return the table that `--dry-run` prints."""
        title = (
            f"{self.workload.name}{format_precision_suffix(self.workload.precision)}: training plan"
        )
        return Table(
            title,
            ["", ""],
            [
                ["workers", f"{len(self.cores_by_worker)} on {self.device}"],
                ["batch per worker", str(self.batch_per_worker)],
                ["target training accuracy", format_share(self.target_accuracy)],
                ["maximum", format_count(self.epochs, "epoch")],
                ["random seed", str(self.seed)],
                ["checkpoint", str(self.checkpoint)],
            ],
        )

    @property
    def key(self) -> str:
        return hash_key({"identity": self.identity, "host": self.testbed.fingerprint()})

    @property
    def used_cores(self) -> list[int]:
        return [core for cores in self.cores_by_worker for core in cores]


def plan_convergence(
    workload: Workload,
    *,
    workers: int = 1,
    batch_per_worker: int | None = None,
    epochs: int = 20,
    target_accuracy: float = 0.99,
    seed: int = 0,
    checkpoint: Path | None = None,
    fresh: bool = False,
) -> ConvergencePlan:
    """Plan a run, and check everything that can be checked before a process starts.

    With `fresh`, the run deletes its checkpoint first.
    """
    require_torch()
    source = workload.dataset.source if workload.dataset else "synthetic"
    if source == "synthetic":
        raise UserMistake(
            f"{workload.name} has synthetic samples, from which nothing can be learned; "
            "set dataset.source in its spec"
        )
    if source == "spoken-digits" and not files.dataset_directory("spoken-digits").is_dir():
        raise MissingRequirement(
            "training needs the spoken-digits dataset; fetch it with: gpuyard data fetch spoken-digits"
        )
    if not 0 < target_accuracy <= 1:
        raise UserMistake(
            f"the accuracy must be above 0% and at most 100%, got {100 * target_accuracy:g}%"
        )
    path = (checkpoint or default_directory() / _file_name(workload.name, workers)).absolute()
    if checkpoint is not None:
        check_writable(path)
    if path.exists() and not path.is_file():
        raise UserMistake(f"{path} is not a file; choose another path with --checkpoint")
    cores_by_worker = LocalMachine().cores_by_worker(workers, computing=True)
    testbed = discover_testbed()
    device: RankDevice = "cuda" if testbed.gpus else "cpu"
    precision = _choose_precision(workload, device)
    batch = batch_per_worker or max(1, SAMPLES_PER_UPDATE // workers)
    identity = {
        "workload": workload.model_dump(mode="json"),
        "code": [code_digest(r, workload) for r in user_code(workload)],
        "workers": workers,
        "batch_per_worker": batch,
        "cores_each": len(cores_by_worker[0]),
        "device": device,
        "seed": seed,
        "rates": [recipe.BASE_LEARNING_RATE, recipe.DECAY, recipe.DECAY_UPDATES, recipe.MIN_DECAY],
        "torch": testbed.torch,
    }
    return ConvergencePlan(
        workload=workload.model_copy(update={"precision": precision}),
        device=device,
        cores_by_worker=cores_by_worker,
        batch_per_worker=batch,
        epochs=epochs,
        target_accuracy=target_accuracy,
        seed=seed,
        checkpoint=path,
        fresh=fresh,
        identity=hash_key(identity)[:16],
        testbed=testbed,
    )


def _choose_precision(workload: Workload, device: RankDevice) -> Precision | None:
    """Return the workload's precision, fp32 on CPUs, or None for PyTorch's default on a GPU."""
    precision = workload.precision
    if precision == "fp16":
        raise UserMistake(
            "training to an accuracy cannot use fp16, because checkpoints do not store its loss scale; "
            "use --precision bf16"
        )
    if precision == "tf32" and device == "cpu":
        raise UserMistake(NO_TF32_MESSAGE)
    return precision or ("fp32" if device == "cpu" else None)


def _file_name(name: str, workers: int) -> str:
    safe_name = "".join(c if c.isalnum() or c in "-_." else "-" for c in name).lstrip(".")
    return f"{safe_name}-{workers}.npz"
