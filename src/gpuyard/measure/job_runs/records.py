"""The record of a job's training speed, from its own reports; each start of a job has one record."""

from typing import Annotated, Any, Literal

from pydantic import Field

from gpuyard.measure.record import Record, RecordPart, StoredProfile, Testbed
from gpuyard.run.protocol import RankDevice
from gpuyard.specs import StrategyName


class JobWindow(RecordPart):
    """Consecutive steps as the job reported them."""

    steps: int
    samples: float
    seconds: float
    step_seconds: Annotated[float, Field(description="the median")]
    at: Annotated[float | None, Field(description="seconds since 1970")] = None
    number: Annotated[
        int | None, Field(description="number of the last step in the whole training")
    ] = None
    loss: float | None = None

    @property
    def samples_per_second(self) -> float:
        return self.samples / self.steps / self.step_seconds


class JobTestbed(Testbed):
    """The machine of a job's first rank, as the job reported it."""

    threads_per_worker: Annotated[int, Field(description="0: unknown")] = 0

    @property
    def is_known(self) -> bool:
        return self.cpu_model != "unknown" or bool(self.gpus)


class JobRun(Record):
    """One start of a job that names its workload. A job is not interrupted to time the parts of a step."""

    kind: Literal["job"] = "job"
    workload: str
    spec: Annotated[dict[str, Any], Field(description="the whole workload spec")]
    job: Annotated[str, Field(description="its UUID")] = ""
    handle: str = ""
    gpus: int
    nodes: int
    workers: Annotated[int, Field(description="processes that train")]
    batch_per_worker: int
    strategy: StrategyName = "ddp"
    device: RankDevice
    samples_per_second: Annotated[
        float, Field(description="of all workers while training, from the median step")
    ]
    low: Annotated[float, Field(description="95% confidence interval over the windows")]
    high: float
    clock_samples_per_second: Annotated[
        float,
        Field(description="by wall-clock time, with evaluations and checkpoints between steps"),
    ]
    step_seconds: float
    steps: Annotated[int, Field(description="timed steps, without warm-up")]
    seconds: float
    warmup_steps: int = 0
    warmup_seconds: float = 0.0
    loss_last: float | None = None
    checkpoint_seconds: Annotated[
        float | None, Field(description="time of one checkpoint, if it reported any")
    ] = None
    startup_seconds: Annotated[
        float | None, Field(description="from the start of the process to its first step")
    ] = None
    windows: tuple[JobWindow, ...]
    profile: StoredProfile = None
    provenance: JobTestbed
