"""The input of a calibration: one row per training run, with the hardware that it ran on."""

from dataclasses import dataclass
from typing import Literal

from gpuyard.catalog import Gpu, ModelProfile, gpus
from gpuyard.predictor.compute import resolve_precision
from gpuyard.specs import Precision, StrategyName, Workload


@dataclass(frozen=True)
class Hardware:
    """The hardware that runs must share for one set of constants to apply to all of them."""

    device: Literal["cpu", "cuda"]
    processor: str  # a GPU's catalog id, otherwise the driver's name; or the CPU model
    count: int  # GPUs, or usable cores, of the machine
    cores_per_worker: int | None = None  # None: GPUs

    @property
    def label(self) -> str:
        if self.device == "cuda":
            return f"{self.count} × {self.processor}"
        cores = f"{self.count} core{'s' if self.count > 1 else ''}"
        return f"{self.processor}, {cores}, {self.cores_per_worker} per worker"

    @property
    def gpu(self) -> Gpu | None:
        """The GPU's catalog entry, if any."""
        return next((gpu for gpu in gpus() if gpu.id == self.processor), None)


@dataclass(frozen=True)
class LineKey:
    """The key of runs with the same compute line; the workload's name does not matter."""

    model: str
    precision: Precision
    gradient_bytes: int


Configuration = tuple[LineKey, StrategyName, int, int]


@dataclass(frozen=True)
class TrainingRow:
    """One measured training run."""

    hardware: Hardware
    workload: Workload
    profile: ModelProfile
    strategy: StrategyName
    workers: int
    batch_per_worker: int
    step_seconds: float
    busy_seconds: (
        float | None
    )  # of the step without exchange: compute and input, of the slowest worker; None: not timed
    all_reduce_seconds: float | None  # all gradients at once, with nothing else running
    noise: float  # one relative σ of the step

    @property
    def key(self) -> LineKey:
        precision = resolve_precision(self.hardware.gpu, self.workload, self.profile)
        return LineKey(self.workload.model_name, precision, self.profile.gradient_bytes)

    @property
    def configuration(self) -> Configuration:
        """The key of repeated runs, which are never split between fit and check."""
        return self.key, self.strategy, self.workers, self.batch_per_worker


@dataclass(frozen=True)
class LinkRates:
    """The link rate that a benchmark measured on one kind of hardware: the starting point of its fit."""

    bytes_per_second: float
    source: str
