"""One timed run with everything needed to believe it, or to do it again."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from gpuyard.run.launch import Launcher
from gpuyard.run.places.place import RunPlace
from gpuyard.run.protocol import Device
from gpuyard.specs import ExchangeOptions, StrategyName


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")  # a newer gpuyard may add keys


class StepParts(_Record):
    """Where the time of one synchronised step goes; the parts add up to it."""

    step_seconds: float
    compute_seconds: float
    exposed_communication_seconds: Annotated[
        float,
        Field(
            description="step minus a step without exchange of gradients; noise below 0 is set to 0"
        ),
    ]
    input_seconds: float


class Window(_Record):
    """Some steps in a row; the time is that of the slowest rank."""

    steps: int
    seconds: float
    input_seconds: float


class SyntheticGpu(_Record):
    """A catalog GPU whose compute was slept, not done; everything that was exchanged is real."""

    gpu: str
    fixed_seconds: float
    seconds_per_sample: float
    basis: str
    source: str

    def step_seconds(self, batch: int) -> float:
        """What it computes for one step."""
        return self.fixed_seconds + batch * self.seconds_per_sample


class BenchHost(_Record):
    """On what and with what it was measured."""

    gpuyard: str
    torch: str
    python: str
    os: str
    kernel: str
    host: str
    cpu_model: str
    cores: int
    memory_bytes: int
    gpus: tuple[str, ...]


class BenchRecord(_Record):
    """What every bench that is kept has: when and on what it was made, and how to find it again."""

    id: str
    key: Annotated[str, Field(description="the same for the same bench on the same machine")]
    created_at: Annotated[str, Field(description="UTC, ISO 8601")]
    host: BenchHost


class Provenance(BenchHost):
    """The same for training, and from what data."""

    backend: str
    threads_per_worker: int
    cores_by_worker: tuple[tuple[int, ...], ...]
    data_source: str
    seed: int
    launcher: Annotated[Launcher, Field(description="who started the ranks")] = "direct"


class Measurement(_Record):
    """How fast one workload trains with so many workers, each on a batch of this size."""

    id: str
    key: Annotated[str, Field(description="the same for the same run on the same machine")]
    created_at: Annotated[str, Field(description="UTC, ISO 8601")]
    kind: Literal["train"] = "train"
    workload: str
    spec: Annotated[dict[str, Any], Field(description="the whole workload spec")]
    workers: int
    batch_per_worker: int
    strategy: StrategyName
    device: Device
    samples_per_second: Annotated[float, Field(description="of all workers together")]
    low: Annotated[float, Field(description="95 % confidence interval of the mean over windows")]
    high: float
    step: StepParts
    all_reduce_bytes: Annotated[
        int | None, Field(description="all gradients; None with one worker")
    ]
    all_reduce_seconds: Annotated[
        float | None, Field(description="median of a bare all-reduce of as many bytes")
    ]
    windows: Annotated[tuple[Window, ...], Field(description="of synchronised steps")]
    local_windows: Annotated[
        tuple[Window, ...], Field(description="of steps without exchange, between the others")
    ] = ()
    loss_first: Annotated[
        float | None, Field(description="of the first step, mean over ranks; None if not finite")
    ]
    loss_last: float | None
    parameter_checksums: Annotated[
        tuple[str, ...], Field(description="of each rank after the run; DDP keeps them equal")
    ] = ()
    remedy: ExchangeOptions = ExchangeOptions()
    synthetic: Annotated[
        SyntheticGpu | None, Field(description="None: the device really computed")
    ] = None
    place: RunPlace = RunPlace()
    doubt: Annotated[
        str | None,
        Field(description="why the run is not credible; None: nothing speaks against it"),
    ] = None
    provenance: Provenance
