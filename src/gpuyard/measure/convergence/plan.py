"""What a training run would be, as a value."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuyard import paths
from gpuyard.errors import MissingRequirement, UserMistake
from gpuyard.measure.convergence import rates
from gpuyard.measure.host import this_host, torch_version
from gpuyard.run.places import Here
from gpuyard.run.protocol import Device
from gpuyard.specs import Workload
from gpuyard.workloads.resolve import code_digest, require_torch

SAMPLES_PER_UPDATE = 50


@dataclass(frozen=True)
class FitPlan:
    """Who trains what, how long, and where it is kept."""

    workload: Workload
    device: Device
    cores_by_worker: tuple[tuple[int, ...], ...]
    batch_per_worker: int
    epochs: int
    target_accuracy: float
    seed: int
    checkpoint: Path
    identity: str

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
            "checkpoint": str(self.checkpoint),
        }


def plan_fit(
    workload: Workload,
    *,
    workers: int = 1,
    batch_per_worker: int | None = None,
    epochs: int = 20,
    target_accuracy: float = 0.99,
    seed: int = 0,
    checkpoint: Path | None = None,
) -> FitPlan:
    """Check everything that can be checked before a process starts."""
    require_torch()
    source = workload.dataset.source if workload.dataset else "synthetic"
    if source == "synthetic":
        raise UserMistake(
            f"{workload.name} has synthetic samples, from which nothing can be learnt; "
            "give its 'dataset' a source"
        )
    if source == "spoken-digits" and not paths.dataset_directory("spoken-digits").is_dir():
        raise MissingRequirement(
            "training needs the spoken digits; get them with: gpuyard data fetch spoken-digits"
        )
    if not 0 < target_accuracy <= 1:
        raise UserMistake(
            f"{target_accuracy:g} is not an accuracy; it is above 0 % and up to 100 %"
        )
    cores_by_worker = Here().cores_by_worker(workers, computing=True)
    device: Device = "cuda" if this_host().gpus else "cpu"
    batch = batch_per_worker or max(1, SAMPLES_PER_UPDATE // workers)
    identity = {
        "workload": workload.model_dump(mode="json"),
        "code": [code_digest(r) for r in (workload.model, source) if ":" in r],
        "workers": workers,
        "batch_per_worker": batch,
        "cores_each": len(cores_by_worker[0]),
        "device": device,
        "seed": seed,
        "rates": [rates.FIRST, rates.KEPT, rates.KEPT_AFTER_UPDATES, rates.LEAST_KEPT],
        "torch": torch_version(),
    }
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
    default = paths.home() / "checkpoints" / f"{_file_name(workload.name)}-{workers}.npz"
    return FitPlan(
        workload=workload,
        device=device,
        cores_by_worker=cores_by_worker,
        batch_per_worker=batch,
        epochs=epochs,
        target_accuracy=target_accuracy,
        seed=seed,
        checkpoint=(checkpoint or default).absolute(),
        identity=digest,
    )


def _file_name(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name).lstrip(".")
