"""Where a deployment's machines are rented: Lambda Cloud, AWS, Google Cloud, OpenStack."""

import ipaddress
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from gpuyard.specs.base import Duration, Spec, UsdPerHour


def _network(text: str) -> str:
    """As clouds take it; `0.0.0.0/0` is all the world."""
    try:
        return str(ipaddress.IPv4Network(text))
    except ValueError:
        raise ValueError(
            "expected IPv4 addresses like 198.51.100.0/24 or 198.51.100.7/32"
        ) from None


Cidr = Annotated[str, AfterValidator(_network)]
Zone = Annotated[str, Field(pattern=r"^[a-z0-9-]{1,64}$", description="a name like us-east-1")]


class CloudTarget(Spec):
    """Machines that cost money while they are there."""

    max_usd_per_hour: Annotated[
        UsdPerHour | None,
        Field(
            gt=0, description="`plan` and `up` refuse what costs more, or has a price nobody knows"
        ),
    ] = None
    ttl: Annotated[
        Duration | None,
        Field(
            gt=0,
            le=366 * 86400,
            description="after so long since the last `up` all is removed; null: when you say so",
        ),
    ] = 8 * 3600.0


class LambdaTarget(CloudTarget):
    """Instances of Lambda Cloud, by its API; the key is in LAMBDA_API_KEY or in a file of yours alone."""

    kind: Literal["lambda"]
    instance_type: Annotated[
        str, Field(pattern=r"^[a-z0-9_]{1,64}$", description="a name like gpu_8x_a100")
    ]
    region: Zone
    ssh_key: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._@+-]{0,63}$",
            description="the name of a public key that the account has",
        ),
    ]


class NetworkedCloudTarget(CloudTarget):
    """One in which the machines get a network of their own, with one door."""

    ssh_from: Annotated[
        Cidr, Field(description="addresses from which ssh reaches the head; nothing else is open")
    ]
    near: Annotated[bool, Field(description="ask for machines that stand close to each other")] = (
        True
    )


class AwsTarget(NetworkedCloudTarget):
    """Instances of AWS EC2; credentials are those that AWS's own tools take."""

    kind: Literal["aws"]
    instance_type: Annotated[
        str, Field(pattern=r"^[a-z0-9-]{1,32}\.[a-z0-9-]{1,32}$", description="like p4d.24xlarge")
    ]
    region: Zone
    zone: Annotated[Zone | None, Field(description="like us-east-1a; null: AWS chooses")] = None
    image: Annotated[
        str | None,
        Field(
            pattern=r"^ami-[0-9a-f]{8,32}$",
            description="an image of Ubuntu; null: the newest Ubuntu 24.04 at the first `up`",
        ),
    ] = None
    disk_gb: Annotated[int, Field(ge=8, le=16_384)] = 200
    efa_interfaces: Annotated[
        int, Field(ge=0, le=64, description="Elastic Fabric Adapters of each machine")
    ] = 0


class GcpTarget(NetworkedCloudTarget):
    """Instances of Google Compute Engine; credentials are those that Google's own tools take."""

    kind: Literal["gcp"]
    project: Annotated[
        str, Field(pattern=r"^[a-z][a-z0-9:.-]{4,61}[a-z0-9]$", description="a project's ID")
    ]
    zone: Annotated[
        str, Field(pattern=r"^[a-z]+-[a-z]+[0-9]+-[a-z]$", description="a name like us-central1-a")
    ]
    machine_type: Annotated[
        str, Field(pattern=r"^[a-z0-9-]{1,64}$", description="a name like a2-highgpu-8g")
    ]
    accelerator: Annotated[
        str | None,
        Field(
            pattern=r"^[a-z0-9-]{1,64}$",
            description="like nvidia-tesla-t4, where the machine type does not include its GPUs",
        ),
    ] = None
    image: Annotated[
        str, Field(pattern=r"^[a-z0-9][a-z0-9/._-]{0,200}$", description="an image of Ubuntu")
    ] = "ubuntu-os-cloud/ubuntu-2404-lts-amd64"
    disk_gb: Annotated[int, Field(ge=10, le=65_536)] = 200


class OpenstackTarget(NetworkedCloudTarget):
    """Servers of an OpenStack; credentials are those of clouds.yaml (OS_CLOUD) or of its openrc file."""

    kind: Literal["openstack"]
    flavor: Annotated[
        str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]{0,127}$", description="the flavor's name")
    ]
    image: Annotated[
        str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._()-]{0,127}$", description="the image's name")
    ]
    external_network: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]{0,127}$",
            description="name of the network that has the floating addresses",
        ),
    ]
    user: Annotated[
        str, Field(pattern=r"^[a-z_][a-z0-9_-]{0,31}$", description="of the image, with sudo")
    ] = "ubuntu"
    name_servers: Annotated[
        tuple[Annotated[str, Field(pattern=r"^[0-9.]{7,15}$", description="an IPv4 address")], ...],
        Field(max_length=5, description="of the new network; none: the cloud's own"),
    ] = ()
    usd_per_hour: Annotated[
        UsdPerHour | None, Field(gt=0, description="what one machine costs you, where it does")
    ] = None
