"""Where a deployment's machines are borrowed: testbeds."""

from typing import Annotated, Literal

from pydantic import Field

from gpuyard.specs.base import Duration, Spec

_IMAGE = r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,254}$"


class GpulabTarget(Spec):
    """Jobs of imec's GPULab, one for each machine; the PEM with your certificate is named by GPULAB_CERT."""

    kind: Literal["gpulab"]
    project: Annotated[
        str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$", description="a project's name")
    ]
    image: Annotated[str, Field(pattern=_IMAGE, description="a Docker image of Debian or Ubuntu")]
    cpus: Annotated[int, Field(gt=0, le=1000, description="of each job")] = 4
    memory_gb: Annotated[int, Field(gt=0, le=10_000, description="of each job")] = 16
    gpu_model: Annotated[
        tuple[
            Annotated[
                str,
                Field(
                    pattern=r"^[A-Za-z0-9 _-]{1,64}$",
                    description="a model of GPU as GPULab names it",
                ),
            ],
            ...,
        ],
        Field(
            max_length=20,
            description="models of GPUs by name (letters, digits, spaces, _ and -), any of which will do",
        ),
    ] = ()
    cluster_id: Annotated[
        int | None, Field(gt=0, le=10_000, description="of GPULab's clusters; null: any that fits")
    ] = None
    min_cuda_version: Annotated[int | None, Field(gt=0, le=100)] = None
    storage: Annotated[
        str,
        Field(
            pattern=r"^/[A-Za-z0-9_/-]{1,100}$",
            description="shared by all jobs of the project, where they find each other",
        ),
    ] = "/project_ghent"
    ttl: Annotated[
        Duration,
        Field(ge=60, le=28 * 86400, description="after so long GPULab ends the jobs by itself"),
    ] = 8 * 3600.0


class VirtualWallTarget(Spec):
    """A slice of imec's Virtual Wall: servers of your own and a network between them. jFed's command line is named by
    GPUYARD_JFED_CLI, the PEM with your certificate by GPUYARD_JFED_PEM."""

    kind: Literal["virtual-wall"]
    project: Annotated[
        str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$", description="a project's name")
    ]
    user_urn: Annotated[
        str,
        Field(
            pattern=r"^urn:publicid:IDN\+[A-Za-z0-9.:-]{1,100}\+user\+[A-Za-z0-9_.-]{1,64}$",
            description="who you are, like urn:publicid:IDN+ilabt.imec.be+user+alice",
        ),
    ]
    testbed: Annotated[
        str,
        Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,100}$", description="whose machines: its authority"),
    ] = "wall2.ilabt.iminds.be"
    hardware_type: Annotated[
        str | None,
        Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$", description="of every machine; null: any"),
    ] = None
    disk_image: Annotated[
        str | None,
        Field(
            pattern=r"^urn:publicid:IDN\+[A-Za-z0-9.:/_+-]{1,200}$",
            description="an image of Debian or Ubuntu; null: the testbed's usual one",
        ),
    ] = None
    latency: Annotated[
        Duration, Field(ge=0, le=10, description="that the network adds, one way")
    ] = 0.0
    loss: Annotated[
        float, Field(ge=0, lt=1, description="of packets that the network drops, 0 to 1")
    ] = 0.0
    bastion: Annotated[
        str | None,
        Field(
            pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}@[A-Za-z0-9][A-Za-z0-9.-]{0,252}$",
            description="user@host by which ssh reaches the machines; null: straight",
        ),
    ] = None
    ttl: Annotated[
        Duration,
        Field(ge=3600, le=28 * 86400, description="after so long the testbed ends the slice"),
    ] = 8 * 3600.0
