"""What training to an accuracy would be, as a value."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuyard import files
from gpuyard.errors import MissingRequirement, UserMistake
from gpuyard.files import check_writable
from gpuyard.measure.convergence import recipe
from gpuyard.measure.convergence.checkpoint import default_directory
from gpuyard.measure.record import Testbed, in_precision, key_of, this_testbed
from gpuyard.measure.training.strategies import NO_TF32
from gpuyard.run.places import Here
from gpuyard.run.protocol import RankDevice
from gpuyard.specs import Precision, Workload
from gpuyard.table import Table
from gpuyard.units import counted, format_share
from gpuyard.workloads.own_code import code_digest, code_of
from gpuyard.workloads.resolve import require_torch

SAMPLES_PER_UPDATE = 50


@dataclass(frozen=True)
class ConvergencePlan:
    """Who trains what, how long, and where it is kept."""

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
        """For `--dry-run` and programs."""
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

    def listing(self) -> Table:
        """For `--dry-run` and people."""
        title = f"{self.workload.name}{in_precision(self.workload.precision)}: would be trained"
        return Table(
            title,
            ["", ""],
            [
                ["workers", f"{len(self.cores_by_worker)} on {self.device}"],
                ["batch per worker", str(self.batch_per_worker)],
                ["until", f"{format_share(self.target_accuracy)} of the training data are right"],
                ["at most", counted(self.epochs, "epoch")],
                ["random seed", str(self.seed)],
                ["checkpoint", str(self.checkpoint)],
            ],
        )

    @property
    def key(self) -> str:
        return key_of({"identity": self.identity, "host": self.testbed.fingerprint()})

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
    """Check everything that can be checked before a process starts; `fresh` forgets the checkpoint first."""
    require_torch()
    source = workload.dataset.source if workload.dataset else "synthetic"
    if source == "synthetic":
        raise UserMistake(
            f"{workload.name} has synthetic samples, from which nothing can be learned; "
            "give its 'dataset' a source"
        )
    if source == "spoken-digits" and not files.dataset_directory("spoken-digits").is_dir():
        raise MissingRequirement(
            "training needs the spoken digits; get them with: gpuyard data fetch spoken-digits"
        )
    if not 0 < target_accuracy <= 1:
        raise UserMistake(
            f"expected an accuracy above 0 % and up to 100 %, got {100 * target_accuracy:g} %"
        )
    kept = (checkpoint or default_directory() / _file_name(workload.name, workers)).absolute()
    if checkpoint is not None:
        check_writable(kept)
    if kept.exists() and not kept.is_file():
        raise UserMistake(f"{kept} is not a file, so no checkpoint can be written to it")
    cores_by_worker = Here().cores_by_worker(workers, computing=True)
    testbed = this_testbed()
    device: RankDevice = "cuda" if testbed.gpus else "cpu"
    precision = _precision(workload, device)
    batch = batch_per_worker or max(1, SAMPLES_PER_UPDATE // workers)
    identity = {
        "workload": workload.model_dump(mode="json"),
        "code": [code_digest(r, workload) for r in code_of(workload)],
        "workers": workers,
        "batch_per_worker": batch,
        "cores_each": len(cores_by_worker[0]),
        "device": device,
        "seed": seed,
        "rates": [recipe.FIRST_RATE, recipe.KEPT, recipe.KEPT_AFTER_UPDATES, recipe.LEAST_KEPT],
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
        checkpoint=kept,
        fresh=fresh,
        identity=key_of(identity)[:16],
        testbed=testbed,
    )


def _precision(workload: Workload, device: RankDevice) -> Precision | None:
    """The workload's, or fp32 on CPUs; None: as PyTorch does on this GPU."""
    asked = workload.precision
    if asked == "fp16":
        raise UserMistake(
            "training to an accuracy is done in fp32, tf32 or bf16: fp16 needs a scale of its loss, which checkpoints "
            "do not keep; give --precision bf16"
        )
    if asked == "tf32" and device == "cpu":
        raise UserMistake(NO_TF32)
    return asked or ("fp32" if device == "cpu" else None)


def _file_name(name: str, workers: int) -> str:
    plain = "".join(c if c.isalnum() or c in "-_." else "-" for c in name).lstrip(".")
    return f"{plain}-{workers}.npz"
