"""The testbeds that a deployment can borrow machines from."""

from typing import Annotated, Literal

from pydantic import Field

from gpuyard.specs.base import Duration, Spec

_IMAGE = r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,254}$"


class GpulabTarget(Spec):
    """Jobs in imec's GPULab, one per machine. GPULAB_CERT names the PEM file with your certificate."""

    kind: Literal["gpulab"]
    project: Annotated[
        str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$", description="name of the project")
    ]
    image: Annotated[str, Field(pattern=_IMAGE, description="Debian or Ubuntu Docker image")]
    cpus: Annotated[int, Field(gt=0, le=1000, description="CPU cores per job")] = 4
    memory_gb: Annotated[int, Field(gt=0, le=10_000, description="memory per job")] = 16
    gpu_model: Annotated[
        tuple[
            Annotated[
                str,
                Field(
                    pattern=r"^[A-Za-z0-9 _-]{1,64}$",
                    description="a GPU model as GPULab names it",
                ),
            ],
            ...,
        ],
        Field(
            max_length=20,
            description="acceptable GPU models by name (letters, digits, spaces, _, and -); default: any",
        ),
    ] = ()
    cluster_id: Annotated[
        int | None, Field(gt=0, le=10_000, description="GPULab cluster; default: any that fits")
    ] = None
    min_cuda_version: Annotated[
        int | None,
        Field(
            gt=0, le=100, description="minimum CUDA version of the driver, like `12`; default: any"
        ),
    ] = None
    storage: Annotated[
        str,
        Field(
            pattern=r"^/[A-Za-z0-9_/-]{1,100}$",
            description="storage that all jobs of the project share, where they find each other",
        ),
    ] = "/project_ghent"
    ttl: Annotated[
        Duration,
        Field(
            ge=60,
            le=28 * 86400,
            description="time after which GPULab stops the jobs",
        ),
    ] = 8 * 3600.0


class VirtualWallTarget(Spec):
    """A slice of imec's Virtual Wall: servers and a network between them.

    GPUYARD_JFED_CLI names jFed's command line, and GPUYARD_JFED_PEM the PEM file with your certificate.
    """

    kind: Literal["virtual-wall"]
    project: Annotated[
        str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$", description="name of the project")
    ]
    user_urn: Annotated[
        str,
        Field(
            pattern=r"^urn:publicid:IDN\+[A-Za-z0-9.:-]{1,100}\+user\+[A-Za-z0-9_.-]{1,64}$",
            description="your identity, like urn:publicid:IDN+ilabt.imec.be+user+alice",
        ),
    ]
    testbed: Annotated[
        str,
        Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,100}$", description="authority of the testbed"),
    ] = "wall2.ilabt.iminds.be"
    hardware_type: Annotated[
        str | None,
        Field(
            pattern=r"^[A-Za-z0-9_.-]{1,64}$",
            description="hardware type of every machine, as the testbed names it; default: any",
        ),
    ] = None
    disk_image: Annotated[
        str | None,
        Field(
            pattern=r"^urn:publicid:IDN\+[A-Za-z0-9.:/_+-]{1,200}$",
            description="URN of a Debian or Ubuntu image; default: the testbed's",
        ),
    ] = None
    latency: Annotated[
        Duration, Field(ge=0, le=10, description="one-way latency that the network adds")
    ] = 0.0
    loss: Annotated[
        float, Field(ge=0, lt=1, description="share of packets that the network drops, 0 to 1")
    ] = 0.0
    bastion: Annotated[
        str | None,
        Field(
            pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}@[A-Za-z0-9][A-Za-z0-9.-]{0,252}$",
            description="`user@host` that ssh connects through",
        ),
    ] = None
    ttl: Annotated[
        Duration,
        Field(
            ge=3600,
            le=28 * 86400,
            description="time after which the testbed removes the slice",
        ),
    ] = 8 * 3600.0
