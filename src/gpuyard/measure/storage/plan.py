"""The plan of a storage bench: the emulated GPUs, their reads, and the storage to test."""

import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from gpuyard.catalog import gpus, models
from gpuyard.catalog.fabric import storage_needs
from gpuyard.cpu import usable_cores
from gpuyard.errors import UnknownName, UserMistake
from gpuyard.predictor import estimate_compute_line
from gpuyard.predictor.compute import resolve_precision
from gpuyard.specs import Workload
from gpuyard.table import Table
from gpuyard.units import format_bytes, format_count, format_seconds, format_share

_MIN_UTILIZATION = 0.9
_DATASET_BYTES = 1_000_000_000
_DATASET_FILES = 16


@dataclass(frozen=True)
class StoragePlan:
    """The GPUs to emulate, the data that they read, and where it is."""

    path: Path
    data: Path | None  # None: write a dataset for the bench
    model: str
    gpu: str
    gpus: int
    batch: int
    compute_seconds: float
    record_bytes: float
    min_utilization: float
    source: str
    seconds: float
    readers: int
    own_bytes: int
    own_files: int = _DATASET_FILES

    @property
    def batch_bytes(self) -> int:
        return max(1, round(self.batch * self.record_bytes))

    def describe(self) -> dict[str, Any]:
        return {k: str(v) if isinstance(v, Path) else v for k, v in asdict(self).items()}

    def build_table(self) -> Table:
        temporary = f"{format_bytes(self.own_bytes)} in {self.own_files} files, removed afterwards"
        return Table(
            f"{self.path}: would be measured",
            ["", ""],
            [
                ["dataset", temporary if self.data is None else str(self.data)],
                ["read by", f"{format_count(self.gpus, 'GPU')} ({self.gpu}) that would train {self.model}"],
                ["step", f"{self.batch} samples of {format_bytes(self.record_bytes)} "
                           f"every {format_seconds(self.compute_seconds)}"],
                ["minimum utilization", format_share(self.min_utilization)],
                ["time per trial", format_seconds(self.seconds)],
                ["readers", f"{self.readers} per GPU"],
                ["source", self.source],
            ],
        )  # fmt: skip

    @property
    def used_cores(self) -> tuple[int, ...]:
        """All usable cores, as the emulated GPUs are threads that can run on any of them."""
        return usable_cores()


def plan_storage(
    path: Path,
    *,
    model: str = "resnet50",
    gpu: str = "h100-sxm5-80gb",
    count: int = 8,
    batch: int | None = None,
    data: Path | None = None,
    seconds: float = 10.0,
    readers: int = 4,
    own_bytes: int = _DATASET_BYTES,
) -> StoragePlan:
    """Plan a storage bench with MLPerf's figures for the model, or else with predicted ones."""
    if not path.is_dir():
        raise UserMistake(f"{path} is not a directory; name one on the storage to be measured")
    if data is None and not os.access(path, os.W_OK):
        raise UserMistake(f"you cannot write to {path}; name an existing dataset with --dataset")
    if data is not None and not data.is_dir():
        raise UserMistake(f"{data} is not a directory")
    if count < 1 or readers < 1 or own_bytes < 1 or not 0 < seconds < math.inf:
        raise UserMistake("GPUs, readers, time, and size must be above 0 and finite")
    demand = _find_demand(model, gpu, batch)
    return StoragePlan(
        path=path,
        data=data,
        model=model,
        gpu=gpu,
        gpus=count,
        batch=demand.batch,
        compute_seconds=demand.compute_seconds,
        record_bytes=demand.record_bytes,
        min_utilization=demand.min_utilization,
        source=demand.source,
        seconds=seconds,
        readers=readers,
        own_bytes=own_bytes,
    )


class _Demand(NamedTuple):
    """The batch that each GPU reads while it computes the previous one."""

    batch: int
    record_bytes: float
    compute_seconds: float
    min_utilization: float
    source: str


def _find_demand(model: str, gpu_id: str, batch: int | None) -> _Demand:
    gpu = gpus().get(gpu_id)
    needs = storage_needs()
    for need in needs:
        if (need.model, need.gpu) == (model, gpu_id) and batch in (None, need.batch_per_gpu):
            return _Demand(
                need.batch_per_gpu,
                need.record_bytes,
                need.step_seconds,
                need.min_utilization,
                need.source,
            )
    model_ids = {need.model for need in needs} | set(models().ids())
    if model not in model_ids:
        raise UnknownName("model", model, model_ids)
    if model not in models():
        published = sorted({need.gpu for need in needs if need.model == model})
        raise UserMistake(
            f"MLPerf Storage has {model} only on {' and '.join(published)}, and only at its own batch "
            "size; use one of these with --gpu, and leave out --batch"
        )
    profile = models().get(model)
    workload = Workload(name=model, model=model)
    batch = batch or workload.batch_per_gpu
    line = estimate_compute_line(workload, profile, gpu)
    # MLPerf's record of the same model is a compressed image, not a tensor
    record_bytes = next((need.record_bytes for need in needs if need.model == model), None)
    return _Demand(
        batch,
        record_bytes or float(profile.input_bytes),
        line.fixed_seconds + batch * line.seconds_per_sample,
        _MIN_UTILIZATION,
        f"{line.source}, {resolve_precision(gpu, workload, profile)}",
    )
