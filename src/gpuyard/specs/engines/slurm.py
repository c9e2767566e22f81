"""The keys of a job file that apply to Slurm only."""

from typing import Annotated

from pydantic import Field

from gpuyard.specs.base import Bytes, Count, Duration, Name, Spec

_INDICES = r"\d{1,7}(?:-\d{1,7}(?::\d{1,7})?)?"


class SlurmOptions(Spec):
    """Options for sbatch, mostly with the same names."""

    partition: Annotated[
        Name | None,
        Field(
            description="partition, as in sbatch's option; default: `$SBATCH_PARTITION`, or the cluster's own"
        ),
    ] = None
    account: Annotated[
        Name | None,
        Field(
            description="account, as in sbatch's option; default: `$SBATCH_ACCOUNT`, or the user's own"
        ),
    ] = None
    qos: Annotated[
        Name | None,
        Field(
            description="quality of service, as in sbatch's option; default: `$SBATCH_QOS`, or the user's own"
        ),
    ] = None
    reservation: Annotated[
        Name | None,
        Field(
            description="reservation, as in sbatch's option; default: `$SBATCH_RESERVATION`, or none"
        ),
    ] = None
    constraint: Annotated[
        Name | None, Field(description="required node features, as in sbatch's option")
    ] = None
    exclude: Annotated[
        Name | None, Field(description="nodes that it must not use, as in sbatch's option")
    ] = None
    array: Annotated[
        Name | None,
        Field(
            pattern=rf"^{_INDICES}(?:,{_INDICES})*(?:%\d{{1,7}})?$",
            description="job array, like `0-9%2`: ten tasks, at most two of them at once",
        ),
    ] = None
    gpu_type: Annotated[
        Name | None,
        Field(description="GPU type as the cluster names it, like `a100`; default: any"),
    ] = None
    cluster: Annotated[
        Name | None,
        Field(
            description="machines, network, and racks for the job's scaling curve: a cluster file, or a short "
            "form like `4x8xt4@25G`; default: one node with the GPUs that Slurm reports"
        ),
    ] = None
    cpus_per_gpu: Annotated[
        Count | None, Field(description="number of CPU cores per GPU; default: the cluster's own")
    ] = None
    memory_per_gpu: Annotated[
        Bytes | None,
        Field(
            gt=0,
            le=1e15,
            description="host memory per GPU, like `32 GiB`; default: the cluster's own",
        ),
    ] = None
    exclusive: Annotated[bool, Field(description="whether no other job may run on its nodes")] = (
        False
    )
    switches: Annotated[
        int | None,
        Field(
            ge=0,
            le=1000,
            description="largest number of switches between its nodes; 0: any; default: 1 if Slurm knows the "
            "switches",
        ),
    ] = None
    switches_wait: Annotated[
        Duration,
        Field(
            ge=0,
            le=30 * 86400,
            description="longest wait for that number of switches",
        ),
    ] = 300.0
    contiguous: Annotated[bool, Field(description="whether it uses only adjacent nodes")] = False
    walltime: Annotated[
        Duration | None,
        Field(
            ge=60,
            le=366 * 86400,
            description="time limit of one run, after which the job writes a checkpoint and is queued again; "
            "default: `time_limit`",
        ),
    ] = None
