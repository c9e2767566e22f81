"""The record of a storage bench."""

from typing import Annotated, Literal

from pydantic import Field

from gpuyard.measure.record import BenchRecord, RecordPart

CacheBypass = Literal["direct", "dropped", "outgrown", "none"]


class Trial(RecordPart):
    """The result for one number of GPUs that read at once."""

    gpus: int
    utilization: Annotated[float, Field(description="compute time over total time")]
    passed: bool
    samples_per_second: float
    bytes_per_second: float
    seconds: float


class StorageBench(BenchRecord):
    """The largest number of GPUs that this storage keeps busy, or why there is no verdict."""

    kind: Literal["storage"] = "storage"

    path: str
    model: str
    gpu: str
    batch: int
    compute_seconds: Annotated[float, Field(description="emulated compute time of one batch")]
    record_bytes: float
    min_utilization: float
    source: str
    filesystem: str
    dataset_bytes: int
    own_dataset: bool
    cache: CacheBypass
    requested_gpus: int
    trials: tuple[Trial, ...]
    verdict: Annotated[
        Literal["passes", "starves", "refused"],
        Field(description="result for the requested number of GPUs"),
    ]
    max_gpus: Annotated[
        int | None, Field(description="the largest number that passed; None: no verdict")
    ]
    reason: Annotated[str, Field(description="why there is no verdict")] = ""
