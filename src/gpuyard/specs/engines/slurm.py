"""The keys of a job file that apply to Slurm only."""

from typing import Annotated

from pydantic import Field

from gpuyard.specs.base import Bytes, Count, Duration, Name, Spec

_INDICES = r"\d{1,7}(?:-\d{1,7}(?::\d{1,7})?)?"


class SlurmOptions(Spec):
    """Options for sbatch, mostly with the same names."""

    partition: Name | None = None
    account: Name | None = None
    qos: Name | None = None
    reservation: Name | None = None
    constraint: Name | None = None
    exclude: Annotated[Name | None, Field(description="nodes that it must not use")] = None
    array: Annotated[
        Name | None,
        Field(
            pattern=rf"^{_INDICES}(?:,{_INDICES})*(?:%\d{{1,7}})?$",
            description="a job array, like 0-9%2: ten tasks, at most two of them at once",
        ),
    ] = None
    gpu_type: Annotated[
        Name | None, Field(description="GPU type as the cluster names it, like a100")
    ] = None
    cluster: Annotated[
        Name | None,
        Field(
            description="cluster file or short form like 4x8xt4@25G, for the job's scaling curve; default: one node with "
            "the GPUs that Slurm reports"
        ),
    ] = None
    cpus_per_gpu: Count | None = None
    memory_per_gpu: Annotated[Bytes | None, Field(gt=0, le=1e15)] = None
    exclusive: Annotated[bool, Field(description="whether no other job may run on its nodes")] = (
        False
    )
    switches: Annotated[
        int | None,
        Field(
            ge=0,
            le=1000,
            description="largest number of switches; 0: any; default: 1 if Slurm knows the topology",
        ),
    ] = None
    switches_wait: Annotated[
        Duration,
        Field(ge=0, le=30 * 86400, description="longest wait for that number of switches"),
    ] = 300.0
    contiguous: Annotated[bool, Field(description="only adjacent nodes")] = False
    walltime: Annotated[
        Duration | None,
        Field(
            ge=60,
            le=366 * 86400,
            description="time limit of one run, after which it writes a checkpoint and is queued again",
        ),
    ] = None
