"""A deployment: which cluster, on whose machines, with which roles."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from gpuyard.specs.base import ClusterReference, Spec
from gpuyard.specs.cluster import Cluster, named_or_described
from gpuyard.specs.targets.clouds import AwsTarget, GcpTarget, LambdaTarget, OpenstackTarget
from gpuyard.specs.targets.testbeds import GpulabTarget, VirtualWallTarget

RoleName = Literal[
    "base",
    "gpu-stack",
    "containers",
    "shared-storage",
    "slurm",
    "training",
    "jupyter",
    "monitoring",
    "firewall",
]
"""In the order in which they are applied."""
FrameworkName = Literal["pytorch", "tensorflow", "mxnet"]
ROLES: tuple[RoleName, ...] = ("base", "shared-storage", "training")
"""Of a deployment that names none."""
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")
USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_PUBLIC_KEY = re.compile(
    r"(?:ssh|ecdsa|sk-ssh|sk-ecdsa)-[A-Za-z0-9@.-]+ [A-Za-z0-9+/=]+(?: [^\x00-\x1f\x7f]*)?"
)
_PATH = re.compile(r"(?:/[A-Za-z0-9._-]+)+")


def _plain_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("expected up to 32 small letters, digits and hyphens")
    return name


def _user_name(name: str) -> str:
    if not USER.fullmatch(name):
        raise ValueError("expected the name of a user: small letters, digits, '_' and '-'")
    return name


def _plain_path(path: str) -> str:
    if not _PATH.fullmatch(path) or "/.." in path or len(path) > 200:
        raise ValueError("expected an absolute path of letters, digits, '.', '_' and '-'")
    return path


def _public_key(line: str) -> str:
    if not _PUBLIC_KEY.fullmatch(line):
        raise ValueError("expected the line of a public key, like ssh-ed25519 AAAA… name")
    return line


PublicKey = Annotated[str, AfterValidator(_public_key)]
DeploymentName = Annotated[str, AfterValidator(_plain_name)]
UserName = Annotated[str, AfterValidator(_user_name)]
AbsolutePath = Annotated[str, AfterValidator(_plain_path)]


class LabTarget(Spec):
    """Machines on this host: each a network namespace and a Debian of its own."""

    kind: Literal["lab"]
    release: Annotated[
        str | None,
        Field(
            pattern=r"^[a-z]{2,20}$",
            description="of Debian or Ubuntu on its machines, like `trixie`, which this host's package mirror has "
            "(default: this host's own)",
        ),
    ] = None


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
    through_head: Annotated[
        bool,
        Field(description="its address is an inside one: ssh goes by way of the first machine"),
    ] = False


class SshTarget(Spec):
    """Machines that you have, reached over ssh with your own key; `up` makes none and `down` removes none."""

    kind: Literal["ssh"]
    machines: Annotated[tuple[SshMachine, ...], Field(min_length=1, max_length=1000)]


Target = Annotated[
    LabTarget
    | SshTarget
    | LambdaTarget
    | AwsTarget
    | GcpTarget
    | OpenstackTarget
    | GpulabTarget
    | VirtualWallTarget,
    Field(discriminator="kind"),
]


class User(Spec):
    """Somebody with an account on every machine."""

    name: Annotated[
        str, Field(pattern=r"^[a-z_][a-z0-9_-]{0,31}$", description="the name of a user")
    ]
    keys: Annotated[
        tuple[PublicKey, ...],
        Field(min_length=1, description="public keys by which ssh lets this user in"),
    ]


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
    target: Annotated[
        Target, Field(description="where its machines are: `kind: lab`, `ssh`, `lambda`, …")
    ]
    head: Annotated[
        tuple[RoleName, ...], Field(description="roles of the first machine, which is the head")
    ] = ROLES
    workers: Annotated[tuple[RoleName, ...], Field(description="roles of the others")] = ROLES
    shared: Annotated[
        AbsolutePath, Field(description="where every machine sees the shared storage")
    ] = "/shared"
    users: Annotated[
        tuple[User, ...],
        Field(description="people with an account on every machine; several share a JupyterHub"),
    ] = ()
    environment: Annotated[
        AbsolutePath | None,
        Field(
            description="a Python environment with gpuyard that every machine has already; else one is installed"
        ),
    ] = None

    framework: Annotated[
        FrameworkName, Field(description="what the role training installs besides gpuyard")
    ] = "pytorch"
    horovod: Annotated[
        bool, Field(description="the role training builds Horovod against PyTorch, too")
    ] = False
    docker_users: Annotated[
        tuple[UserName, ...],
        Field(
            max_length=1000,
            description="who may use Docker, which is as much as being root, where the role containers is",
        ),
    ] = ()

    @model_validator(mode="after")
    def _horovod_has_its_framework(self) -> "Deployment":
        if self.horovod and self.framework != "pytorch":
            raise ValueError(
                f"horovod is built against pytorch here, and framework is {self.framework}"
            )
        return self

    @model_validator(mode="after")
    def _every_machine_is_there(self) -> "Deployment":
        if isinstance(self.target, SshTarget) and isinstance(self.cluster, Cluster):
            there, wanted = len(self.target.machines), self.cluster.nodes
            if there != wanted:
                raise ValueError(f"the cluster has {wanted} nodes, and the target {there} machines")
        return self

    @model_validator(mode="after")
    def _everything_is_where_it_can_be(self) -> "Deployment":
        if "jupyter" in self.workers:
            raise ValueError("workers: jupyter is a role of the head alone")
        names = [user.name for user in self.users]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"users: {twice[0]!r} is there twice")
        if "root" in names:
            raise ValueError("users: root is on every machine already")
        return self
