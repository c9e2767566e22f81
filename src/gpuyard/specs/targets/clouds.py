"""The clouds that a deployment can rent machines from: Lambda Cloud, AWS, Google Cloud, and OpenStack."""

import ipaddress
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from gpuyard.specs.base import Duration, Spec, UsdPerHour


def _normalize_network(text: str) -> str:
    """Return the addresses as clouds accept them; `0.0.0.0/0` is everywhere."""
    try:
        return str(ipaddress.IPv4Network(text))
    except ValueError:
        raise ValueError(
            "expected IPv4 addresses like 198.51.100.0/24 or 198.51.100.7/32"
        ) from None


Cidr = Annotated[str, AfterValidator(_normalize_network)]
Zone = Annotated[str, Field(pattern=r"^[a-z0-9-]{1,64}$", description="a name like us-east-1")]


class CloudTarget(Spec):
    """Machines that cost money while they exist."""

    max_usd_per_hour: Annotated[
        UsdPerHour | None,
        Field(gt=0, description="`plan` and `up` refuse a higher or an unknown price"),
    ] = None
    ttl: Annotated[
        Duration | None,
        Field(
            gt=0,
            le=366 * 86400,
            description="time since the last `up` after which everything is removed; null: never",
        ),
    ] = 8 * 3600.0


class LambdaTarget(CloudTarget):
    """Lambda Cloud instances; the API key is in LAMBDA_API_KEY or in a file that only you can read."""

    kind: Literal["lambda"]
    instance_type: Annotated[
        str, Field(pattern=r"^[a-z0-9_]{1,64}$", description="a name like gpu_8x_a100")
    ]
    region: Zone
    ssh_key: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._@+-]{0,63}$",
            description="the name of a public key in the account",
        ),
    ]


class NetworkedCloudTarget(CloudTarget):
    """A cloud in which the machines get their own network, with one entrance."""

    ssh_from: Annotated[
        Cidr, Field(description="addresses that can reach the head over ssh; nothing else is open")
    ]
    near: Annotated[bool, Field(description="request machines that are close to each other")] = True


class AwsTarget(NetworkedCloudTarget):
    """AWS EC2 instances, with the credentials that AWS's own tools use."""

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
            description="an Ubuntu image; null: the newest Ubuntu 24.04 at the first `up`",
        ),
    ] = None
    disk_gb: Annotated[int, Field(ge=8, le=16_384)] = 200
    efa_interfaces: Annotated[
        int, Field(ge=0, le=64, description="Elastic Fabric Adapters per machine")
    ] = 0


class GcpTarget(NetworkedCloudTarget):
    """Google Compute Engine instances, with the credentials that Google's own tools use."""

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
            description="like nvidia-tesla-t4, if the machine type does not include GPUs",
        ),
    ] = None
    image: Annotated[
        str, Field(pattern=r"^[a-z0-9][a-z0-9/._-]{0,200}$", description="an Ubuntu image")
    ] = "ubuntu-os-cloud/ubuntu-2404-lts-amd64"
    disk_gb: Annotated[int, Field(ge=10, le=65_536)] = 200


class OpenstackTarget(NetworkedCloudTarget):
    """OpenStack servers, with the credentials from clouds.yaml (OS_CLOUD) or an openrc file."""

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
            description="the name of the network that has the floating addresses",
        ),
    ]
    user: Annotated[
        str,
        Field(pattern=r"^[a-z_][a-z0-9_-]{0,31}$", description="a user of the image with sudo"),
    ] = "ubuntu"
    name_servers: Annotated[
        tuple[Annotated[str, Field(pattern=r"^[0-9.]{7,15}$", description="an IPv4 address")], ...],
        Field(max_length=5, description="DNS servers of the new network; default: the cloud's"),
    ] = ()
    usd_per_hour: Annotated[
        UsdPerHour | None, Field(gt=0, description="price of one machine, if you pay for it")
    ] = None
