"""What a bench of storage would do, as a value."""

import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpuyard.catalog import gpus, models
from gpuyard.catalog.fabric import storage_needs
from gpuyard.cpu import usable_cores
from gpuyard.errors import UnknownName, UserMistake
from gpuyard.predict import compute_line
from gpuyard.predict.compute import precision_on
from gpuyard.specs import Workload
from gpuyard.table import Table
from gpuyard.units import counted, format_bytes, format_seconds, format_share

_LEAST_UTILISATION = 0.9
_OWN_BYTES = 1_000_000_000
_OWN_FILES = 16


@dataclass(frozen=True)
class StoragePlan:
    """Which GPUs are stood for, what they read, and where that is."""

    path: Path
    data: Path | None
    model: str
    gpu: str
    gpus: int
    batch: int
    compute_seconds: float
    record_bytes: float
    least_utilisation: float
    source: str
    seconds: float
    readers: int
    own_bytes: int
    own_files: int = _OWN_FILES

    @property
    def batch_bytes(self) -> int:
        return max(1, round(self.batch * self.record_bytes))

    def describe(self) -> dict[str, Any]:
        """For `--dry-run` and programs."""
        return {k: str(v) if isinstance(v, Path) else v for k, v in asdict(self).items()}

    def listing(self) -> Table:
        """For `--dry-run` and people."""
        own = f"{format_bytes(self.own_bytes)} in {self.own_files} files, removed afterwards"
        return Table(
            f"{self.path}: would be measured",
            ["", ""],
            [
                ["data set", own if self.data is None else str(self.data)],
                ["read by", f"{counted(self.gpus, 'GPU')} ({self.gpu}) that would train {self.model}"],
                ["a step", f"{self.batch} samples of {format_bytes(self.record_bytes)} "
                           f"every {format_seconds(self.compute_seconds)}"],
                ["least utilization", format_share(self.least_utilisation)],
                ["timed", format_seconds(self.seconds)],
                ["readers", f"{self.readers} for each GPU"],
                ["figures from", self.source],
            ],
        )  # fmt: skip

    @property
    def used_cores(self) -> tuple[int, ...]:
        """Its GPUs are threads that may run anywhere."""
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
    own_bytes: int = _OWN_BYTES,
) -> StoragePlan:
    """From MLPerf's own figures where it has them, else from the predictor."""
    if not path.is_dir():
        raise UserMistake(f"{path} is not a directory; name one on the storage to be measured")
    if data is None and not os.access(path, os.W_OK):
        raise UserMistake(
            f"{path} can't be written by you; name an existing data set with --dataset"
        )
    if data is not None and not data.is_dir():
        raise UserMistake(f"{data} is not a directory")
    if count < 1 or readers < 1 or own_bytes < 1 or not 0 < seconds < math.inf:
        raise UserMistake("expected GPUs, readers, time and size above 0, and finite")
    computed, record, used_batch, least, source = _need(model, gpu, batch)
    return StoragePlan(
        path=path,
        data=data,
        model=model,
        gpu=gpu,
        gpus=count,
        batch=used_batch,
        compute_seconds=computed,
        record_bytes=record,
        least_utilisation=least,
        source=source,
        seconds=seconds,
        readers=readers,
        own_bytes=own_bytes,
    )


def _need(model: str, gpu: str, batch: int | None) -> tuple[float, float, int, float, str]:
    gpus().get(gpu)
    for need in storage_needs():
        if (need.model, need.gpu) == (model, gpu) and batch in (None, need.batch_per_gpu):
            seconds = need.step_seconds
            return (
                seconds,
                need.record_bytes,
                need.batch_per_gpu,
                need.least_utilisation,
                need.source,
            )
    known = {need.model for need in storage_needs()} | set(models().ids())
    if model not in known:
        raise UnknownName("model", model, known)
    if model not in models():
        there = sorted({need.gpu for need in storage_needs() if need.model == model})
        raise UserMistake(
            f"MLPerf Storage knows {model} on {' and '.join(there)} at its own batch only"
        )
    profile = models().get(model)
    used = batch or Workload(name=model, model=model).batch_per_gpu
    workload, row = Workload(name=model, model=model), gpus().get(gpu)
    line = compute_line(workload, profile, row)
    source = f"{line.source}, {precision_on(row, workload, profile)}"
    seconds = line.fixed_seconds + used * line.seconds_per_sample
    # MLPerf's own record of the same model, where it has one: a compressed image, not the tensor
    record = next((n.record_bytes for n in storage_needs() if n.model == model), None)
    return seconds, record or float(profile.input_bytes), used, _LEAST_UTILISATION, source
