"""What a job file says to Slurm only."""

from typing import Annotated

from pydantic import Field

from gpuyard.specs.base import Bytes, Count, Duration, Name, Spec

_INDICES = r"\d{1,7}(?:-\d{1,7}(?::\d{1,7})?)?"


class SlurmOptions(Spec):
    """Passed on to sbatch, mostly by the option of the same name."""

    partition: Name | None = None
    account: Name | None = None
    qos: Name | None = None
    reservation: Name | None = None
    constraint: Name | None = None
    exclude: Annotated[Name | None, Field(description="nodes that it must not get")] = None
    array: Annotated[
        Name | None,
        Field(
            pattern=rf"^{_INDICES}(?:,{_INDICES})*(?:%\d{{1,7}})?$",
            description="like 0-9%2: ten tasks, at most two of them at once",
        ),
    ] = None
    gpu_type: Annotated[Name | None, Field(description="as the cluster calls it, like a100")] = None
    cluster: Annotated[
        Name | None,
        Field(
            description="its machines, network and racks, for the job's curve: a cluster file, or like 4x8xt4@25G; else "
            "one node as Slurm names its GPUs"
        ),
    ] = None
    cpus_per_gpu: Count | None = None
    memory_per_gpu: Annotated[Bytes | None, Field(gt=0, le=1e15)] = None
    exclusive: Annotated[bool, Field(description="whether it gets its nodes for itself")] = False
    switches: Annotated[
        int | None,
        Field(
            ge=0, le=1000, description="over so many at most; 0 for any; else 1 where Slurm knows"
        ),
    ] = None
    switches_wait: Annotated[
        Duration, Field(ge=0, le=30 * 86400, description="it waits for them so long at most")
    ] = 300.0
    contiguous: Annotated[bool, Field(description="only nodes that are next to each other")] = False
    walltime: Annotated[
        Duration | None,
        Field(
            ge=60,
            le=366 * 86400,
            description="of one run: at its end it writes a checkpoint and is queued again",
        ),
    ] = None
