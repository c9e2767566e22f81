"""What a calibration is fitted to: plain rows, one a training run, with the hardware that it ran on."""

from dataclasses import dataclass
from typing import Literal

from gpuyard.catalog import Gpu, ModelProfile, gpus
from gpuyard.predict.compute import precision_on
from gpuyard.specs import Precision, StrategyName, Workload


@dataclass(frozen=True)
class Hardware:
    """What runs must have in common for one set of constants to hold for all of them."""

    device: Literal["cpu", "cuda"]
    processor: str  # a GPU's name in the catalog, else the driver's; or the model of the CPU
    count: int  # GPUs, or usable cores, of the machine
    cores_per_worker: int | None = None  # None: GPUs

    @property
    def label(self) -> str:
        if self.device == "cuda":
            return f"{self.count} × {self.processor}"
        many = f"{self.count} core{'s' if self.count > 1 else ''}"
        return f"{self.processor}, {many}, {self.cores_per_worker} a worker"

    @property
    def gpu(self) -> Gpu | None:
        """Its row in the catalog."""
        return next((gpu for gpu in gpus() if gpu.id == self.processor), None)


@dataclass(frozen=True)
class LineKey:
    """Runs with the same compute line: the name that a user gave the workload does not matter."""

    model: str
    precision: Precision
    gradient_bytes: int


Configuration = tuple[LineKey, StrategyName, int, int]


@dataclass(frozen=True)
class TrainingRow:
    """One measured run."""

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
    all_reduce_seconds: float | None  # of all gradients at once, nothing else running
    noise: float  # one σ of the step, relative

    @property
    def key(self) -> LineKey:
        precision = precision_on(self.hardware.gpu, self.workload, self.profile)
        return LineKey(self.workload.model, precision, self.profile.gradient_bytes)

    @property
    def configuration(self) -> Configuration:
        """Repeats of one configuration are never split between fit and check."""
        return self.key, self.strategy, self.workers, self.batch_per_worker


@dataclass(frozen=True)
class LinkRates:
    """What a bench of the links found on one kind of hardware: where a fit of the link starts."""

    bytes_per_second: float
    source: str
