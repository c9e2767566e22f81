"""What a bench of storage found."""

from typing import Annotated, Literal

from pydantic import Field

from gpuyard.measure.record import BenchRecord, RecordPart

CacheBypass = Literal["direct", "dropped", "outgrown", "none"]


class Trial(RecordPart):
    """So many GPUs reading at once."""

    gpus: int
    utilisation: Annotated[float, Field(description="compute time over all time")]
    passed: bool
    samples_per_second: float
    bytes_per_second: float
    seconds: float


class StorageBench(BenchRecord):
    """The largest number of GPUs that this storage keeps busy, or why nothing can be said."""

    kind: Literal["storage"] = "storage"

    path: str
    model: str
    gpu: str
    batch: int
    compute_seconds: Annotated[float, Field(description="of one batch, slept")]
    record_bytes: float
    least_utilisation: float
    source: str
    filesystem: str
    dataset_bytes: int
    own_dataset: bool
    cache: CacheBypass
    asked_gpus: int
    trials: tuple[Trial, ...]
    verdict: Annotated[
        Literal["passes", "starves", "refused"],
        Field(description="for the number that was asked for"),
    ]
    most_gpus: Annotated[
        int | None, Field(description="the largest number that passed; None: no verdict")
    ]
    reason: Annotated[str, Field(description="why a verdict was refused")] = ""
