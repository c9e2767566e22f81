"""The clouds that a deployment can rent machines from: Lambda Cloud, AWS, Google Cloud, and OpenStack."""

import ipaddress
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from gpuyard.specs.base import Duration, Spec, UsdPerHour

HERE = "here"
# No machine connects from these: documentation (RFC 5737, RFC 3849), benchmarks (RFC 2544), this host, one link, multicast.
_UNUSABLE = tuple(
    map(
        ipaddress.ip_network,
        (
            *("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32"),
            *("198.18.0.0/15", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3"),
        ),
    )
)


def _normalize_network(text: str) -> str:
    """Return the addresses as clouds accept them; `0.0.0.0/0` is everywhere."""
    if text == HERE:
        return text
    try:
        network = ipaddress.ip_network(text)
    except ValueError:
        raise ValueError(
            f"expected `{HERE}` or IPv4 addresses, one of them with /32 after it"
        ) from None
    if any(
        network.network_address in other and network.prefixlen >= other.prefixlen
        for other in _UNUSABLE
    ):
        raise ValueError(
            f"{text} is reserved for documentation and other uses, so you would pay for machines that you cannot reach: "
            f"write your own addresses, or `{HERE}`"
        )
    if network.version != 4:
        raise ValueError("expected IPv4 addresses; the machines have no IPv6 addresses")
    return str(network)


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
        str,
        Field(
            pattern=r"^[a-z0-9_]{1,64}$",
            description="instance type of each machine, like `gpu_8x_a100`",
        ),
    ]
    region: Annotated[Zone, Field(description="region, like `us-east-1`")]
    ssh_key: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._@+-]{0,63}$",
            description="name of a public key in the account",
        ),
    ]


class NetworkedCloudTarget(CloudTarget):
    """A cloud in which the machines get their own network, with one entrance."""

    ssh_from: Annotated[
        Cidr,
        Field(
            description="IPv4 addresses that can reach the head over ssh, and nothing else can; `here`: this machine's "
            "public address at each `up`"
        ),
    ] = HERE
    near: Annotated[bool, Field(description="request machines that are close to each other")] = True


class AwsTarget(NetworkedCloudTarget):
    """AWS EC2 instances, with the credentials that AWS's own tools use."""

    kind: Literal["aws"]
    instance_type: Annotated[
        str,
        Field(
            pattern=r"^[a-z0-9-]{1,32}\.[a-z0-9-]{1,32}$",
            description="instance type of each machine, like `p4d.24xlarge`",
        ),
    ]
    region: Annotated[Zone, Field(description="region, like `us-east-1`")]
    zone: Annotated[
        Zone | None,
        Field(
            description="zone, like `us-east-1a`; default: the first that offers the instance type"
        ),
    ] = None
    image: Annotated[
        str | None,
        Field(
            pattern=r"^ami-[0-9a-f]{8,32}$",
            description="Ubuntu AMI; default: Amazon's newest with a driver at the first `up`",
        ),
    ] = None
    disk_gb: Annotated[
        int, Field(ge=8, le=16_384, description="disk size of each machine in GB")
    ] = 200
    efa_interfaces: Annotated[
        int | None,
        Field(
            ge=0,
            le=64,
            description="number of Elastic Fabric Adapters per machine; default: as many as the instance type has; 0 for one machine",
        ),
    ] = None
    market: Annotated[
        Literal["on-demand", "spot", "capacity-block"],
        Field(description="how the machines are paid; AWS may end spot machines at any time"),
    ] = "on-demand"
    capacity_reservation: Annotated[
        str | None,
        Field(
            pattern=r"^cr-[0-9a-f]{8,32}$",
            description="capacity reservation or capacity block, like `cr-0123456789abcdef0`; needs its `zone`",
        ),
    ] = None

    @model_validator(mode="after")
    def _check_reservation(self) -> "AwsTarget":
        if self.capacity_reservation is not None and self.zone is None:
            raise ValueError("capacity_reservation needs `zone`, the zone of the reservation")
        if self.capacity_reservation is not None and self.market == "spot":
            raise ValueError("spot machines cannot use a capacity_reservation")
        if self.market == "capacity-block" and self.capacity_reservation is None:
            raise ValueError("market capacity-block needs its id as capacity_reservation")
        return self


class GcpTarget(NetworkedCloudTarget):
    """Google Compute Engine instances, with the credentials that Google's own tools use."""

    kind: Literal["gcp"]
    project: Annotated[
        str, Field(pattern=r"^[a-z][a-z0-9:.-]{4,61}[a-z0-9]$", description="ID of the project")
    ]
    zone: Annotated[
        str, Field(pattern=r"^[a-z]+-[a-z]+[0-9]+-[a-z]$", description="zone, like `us-central1-a`")
    ]
    machine_type: Annotated[
        str, Field(pattern=r"^[a-z0-9-]{1,64}$", description="machine type, like `a2-highgpu-8g`")
    ]
    accelerator: Annotated[
        str | None,
        Field(
            pattern=r"^[a-z0-9-]{1,64}$",
            description="GPU to add to a machine type without GPUs, like `nvidia-tesla-t4`; the cluster sets the number per machine",
        ),
    ] = None
    image: Annotated[
        str | None,
        Field(
            pattern=r"^[a-z0-9][a-z0-9/._-]{0,200}$",
            description="Ubuntu image; default: Canonical's newest with a driver at the first `up`",
        ),
    ] = None
    spot: Annotated[
        bool, Field(description="use spot machines, which Google may stop at any time")
    ] = False
    disk_gb: Annotated[
        int, Field(ge=10, le=65_536, description="disk size of each machine in GB")
    ] = 200


class OpenstackTarget(NetworkedCloudTarget):
    """OpenStack servers, with the credentials from clouds.yaml (OS_CLOUD) or an openrc file."""

    kind: Literal["openstack"]
    flavor: Annotated[
        str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]{0,127}$", description="name of the flavor")
    ]
    image: Annotated[
        str,
        Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._()-]{0,127}$", description="name of the image"),
    ]
    external_network: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]{0,127}$",
            description="name of the network that has the floating addresses",
        ),
    ]
    user: Annotated[
        str,
        Field(pattern=r"^[a-z_][a-z0-9_-]{0,31}$", description="user of the image with sudo"),
    ] = "ubuntu"
    name_servers: Annotated[
        tuple[Annotated[str, Field(pattern=r"^[0-9.]{7,15}$", description="an IPv4 address")], ...],
        Field(max_length=5, description="DNS servers of the new network; default: the cloud's"),
    ] = ()
    usd_per_hour: Annotated[
        UsdPerHour | None,
        Field(gt=0, description="price of one machine, if you pay for it; default: unknown"),
    ] = None
