"""A deployment: which cluster, on whose machines, with which roles."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from gpuyard.specs.base import ClusterReference, Duration, Spec, UsdPerHour
from gpuyard.specs.cluster import Cluster, named_or_described

RoleName = Literal["base", "shared-storage", "slurm", "training"]
"""In the order in which they are applied."""
ROLES: tuple[RoleName, ...] = ("base", "shared-storage", "training")
"""Of a deployment that names none."""
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")
_PATH = re.compile(r"(?:/[A-Za-z0-9._-]+)+")


def _plain_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("expected up to 32 small letters, digits and hyphens")
    return name


def _plain_path(path: str) -> str:
    if not _PATH.fullmatch(path) or "/.." in path or len(path) > 200:
        raise ValueError("expected an absolute path of letters, digits, '.', '_' and '-'")
    return path


DeploymentName = Annotated[str, AfterValidator(_plain_name)]
AbsolutePath = Annotated[str, AfterValidator(_plain_path)]


class LabTarget(Spec):
    """Machines on this host: each a network namespace and a Debian of its own."""

    kind: Literal["lab"]


class SshMachine(Spec):
    """One that you have."""

    name: DeploymentName
    address: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9.:-]{0,252}$",
            description="a host name or an IP address",
        ),
    ]
    user: Annotated[
        str, Field(pattern=r"^[a-z_][a-z0-9_-]{0,31}$", description="the name of a user")
    ] = "root"
    port: Annotated[int, Field(gt=0, le=65535)] = 22


class SshTarget(Spec):
    """Machines that you have, reached over ssh with your own key; `up` makes none and `down` removes none."""

    kind: Literal["ssh"]
    machines: Annotated[tuple[SshMachine, ...], Field(min_length=1, max_length=1000)]


class CloudTarget(Spec):
    """Machines that cost money while they are there."""

    max_usd_per_hour: Annotated[
        UsdPerHour | None,
        Field(gt=0, description="`plan` and `up` refuse what costs more"),
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
    region: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,64}$", description="a name like us-east-1")]
    ssh_key: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._@+-]{0,63}$",
            description="the name of a public key that the account has",
        ),
    ]


Target = Annotated[LabTarget | SshTarget | LambdaTarget, Field(discriminator="kind")]


class Deployment(Spec):
    """What `gpuyard deploy` takes as a file, `NAME.deployment.yaml`."""

    name: DeploymentName
    cluster: Annotated[
        Annotated[Cluster, Tag("described")] | Annotated[ClusterReference, Tag("named")],
        Discriminator(named_or_described),
        Field(
            description="a cluster file beside this one, its keys here, or like 2x4xrtx-3090@10G"
        ),
    ]
    target: Annotated[Target, Field(description="where its machines are: lab, ssh or lambda")]
    head: Annotated[
        tuple[RoleName, ...], Field(description="roles of the first machine, which is the head")
    ] = ROLES
    workers: Annotated[tuple[RoleName, ...], Field(description="roles of the others")] = ROLES
    shared: Annotated[
        AbsolutePath, Field(description="where every machine sees the shared storage")
    ] = "/shared"
    environment: Annotated[
        AbsolutePath | None,
        Field(
            description="a Python environment with gpuyard that every machine has already; else one is installed"
        ),
    ] = None

    @model_validator(mode="after")
    def _every_machine_is_there(self) -> "Deployment":
        if isinstance(self.target, SshTarget) and isinstance(self.cluster, Cluster):
            there, wanted = len(self.target.machines), self.cluster.nodes
            if there != wanted:
                raise ValueError(f"the cluster has {wanted} nodes, and the target {there} machines")
        return self
