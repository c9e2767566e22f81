"""The spec of a deployment: a cluster, the machines for it, and their roles."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from gpuyard.specs.base import ClusterReference, Spec
from gpuyard.specs.cluster import Cluster, get_reference_tag
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
    "mlflow",
    "monitoring",
    "firewall",
]
"""The roles, in the order in which they are applied."""
FrameworkName = Literal["pytorch", "tensorflow", "mxnet"]
ROLES: tuple[RoleName, ...] = ("base", "gpu-stack", "shared-storage", "training")
"""The default roles."""
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")
USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_PUBLIC_KEY = re.compile(
    r"(?:ssh|ecdsa|sk-ssh|sk-ecdsa)-[A-Za-z0-9@.-]+ [A-Za-z0-9+/=]+(?: [^\x00-\x1f\x7f]*)?"
)
_PATH = re.compile(r"(?:/[A-Za-z0-9._-]+)+")


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("expected up to 32 lowercase letters, digits, and hyphens")
    return name


def _check_user_name(name: str) -> str:
    if not USER.fullmatch(name):
        raise ValueError("expected a user name: lowercase letters, digits, '_', and '-'")
    return name


def _check_path(path: str) -> str:
    if not _PATH.fullmatch(path) or "/.." in path or len(path) > 200:
        raise ValueError("expected an absolute path of letters, digits, '.', '_', and '-'")
    return path


def _check_public_key(line: str) -> str:
    if not _PUBLIC_KEY.fullmatch(line):
        raise ValueError("expected the line of a public key, like ssh-ed25519 AAAA… name")
    return line


PublicKey = Annotated[str, AfterValidator(_check_public_key)]
DeploymentName = Annotated[str, AfterValidator(_check_name)]
UserName = Annotated[str, AfterValidator(_check_user_name)]
AbsolutePath = Annotated[str, AfterValidator(_check_path)]


class LabTarget(Spec):
    """Machines on this host: each has its own network namespace and its own Debian."""

    kind: Literal["lab"]
    release: Annotated[
        str | None,
        Field(
            pattern=r"^[a-z]{2,20}$",
            description="the Debian or Ubuntu release of its machines, like `trixie`, that this host's package mirror has; "
            "default: this host's release",
        ),
    ] = None


class SshMachine(Spec):
    """A machine that you have."""

    name: Annotated[DeploymentName, Field(description="host name in the cluster")]
    address: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9.:-]{0,252}$",
            description="host name or IP address for ssh",
        ),
    ]
    user: Annotated[
        str,
        Field(
            pattern=r"^[a-z_][a-z0-9_-]{0,31}$",
            description="user who logs in: root, or a user with sudo",
        ),
    ] = "root"
    port: Annotated[int, Field(gt=0, le=65535, description="port of its sshd")] = 22
    through_head: Annotated[
        bool,
        Field(
            description="whether the address is internal, so that ssh connects through the first machine"
        ),
    ] = False


class SshTarget(Spec):
    """Machines that you have, reached over ssh with your own key; `up` creates none and `down` removes none."""

    kind: Literal["ssh"]
    machines: Annotated[
        tuple[SshMachine, ...],
        Field(
            min_length=1,
            max_length=1000,
            description="list of machines, one per node of the cluster, the head first",
        ),
    ]


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
    """A person with an account on every machine."""

    name: Annotated[
        str, Field(pattern=r"^[a-z_][a-z0-9_-]{0,31}$", description="name of the account")
    ]
    keys: Annotated[
        tuple[PublicKey, ...],
        Field(min_length=1, description="public keys that this user logs in with over ssh"),
    ]


class Deployment(Spec):
    """The file that `gpuyard deploy` reads, `NAME.deployment.yaml`."""

    name: Annotated[
        DeploymentName, Field(description="name of up to 32 lowercase letters, digits, and hyphens")
    ]
    cluster: Annotated[
        Annotated[Cluster, Tag("described")] | Annotated[ClusterReference, Tag("named")],
        Discriminator(get_reference_tag),
        Field(
            description="cluster file next to this one, the cluster's keys, or a short form like "
            "`2x4xrtx-3090@10G`"
        ),
    ]
    target: Annotated[Target, Field(description="source of the machines")]
    head: Annotated[tuple[RoleName, ...], Field(description="roles of the first machine")] = ROLES
    workers: Annotated[
        tuple[RoleName, ...],
        Field(
            description="roles of the other machines: `base`, `gpu-stack`, `containers`, `shared-storage`, "
            "`slurm`, `training`, `monitoring`, `firewall`; only the head can have `jupyter` and "
            "`mlflow`"
        ),
    ] = ROLES
    shared: Annotated[
        AbsolutePath, Field(description="mount point of the shared storage on every machine")
    ] = "/shared"
    users: Annotated[
        tuple[User, ...],
        Field(
            description="people with an account on every machine; two or more share a JupyterHub"
        ),
    ] = ()
    environment: Annotated[
        AbsolutePath | None,
        Field(
            description="Python environment with gpuyard that every machine already has; default: gpuyard "
            "installs one"
        ),
    ] = None

    framework: Annotated[
        FrameworkName,
        Field(description="framework that the role `training` installs with gpuyard"),
    ] = "pytorch"
    horovod: Annotated[
        bool, Field(description="whether the role `training` also builds Horovod against PyTorch")
    ] = False
    docker_users: Annotated[
        tuple[UserName, ...],
        Field(
            max_length=1000,
            description="users who may use Docker, and so act as root, on machines with the role `containers`",
        ),
    ] = ()

    @model_validator(mode="after")
    def _check_horovod(self) -> "Deployment":
        if self.horovod and self.framework != "pytorch":
            raise ValueError(f"horovod needs framework pytorch, got {self.framework}")
        return self

    @model_validator(mode="after")
    def _check_machine_count(self) -> "Deployment":
        if isinstance(self.target, SshTarget) and isinstance(self.cluster, Cluster):
            machines, nodes = len(self.target.machines), self.cluster.nodes
            if machines != nodes:
                raise ValueError(
                    f"the cluster has {nodes} nodes, but the target {machines} machines"
                )
        return self

    @model_validator(mode="after")
    def _check_roles_and_users(self) -> "Deployment":
        for role in ("jupyter", "mlflow"):
            if role in self.workers:
                raise ValueError(f"workers: only the head can have the role {role}")
        names = [user.name for user in self.users]
        if duplicates := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"users: duplicate user {duplicates[0]!r}")
        if "root" in names:
            raise ValueError("users: root already exists on every machine")
        return self
