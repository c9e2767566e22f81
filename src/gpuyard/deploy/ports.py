"""Ports that each role opens to the cluster's other machines. Every machine also opens ssh; everything else stays closed."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuyard.deploy.state import Host
from gpuyard.specs.deployment import RoleName

SSH = 22
MLFLOW = 5000


@dataclass(frozen=True)
class Ports:
    """The ports that a role opens on the head and on each other machine."""

    head: tuple[int, ...]
    others: tuple[int, ...]


PORTS: dict[RoleName, Ports] = {
    "shared-storage": Ports((111, 2049), (111,)),  # used only with NFS
    "slurm": Ports((6817, 6818, 6819), (6818,)),
    "mlflow": Ports((MLFLOW,), ()),
    "monitoring": Ports((9100, 9400), (9100, 9400)),
}


def get_ports(roles: Sequence[RoleName], *, head: bool) -> list[int]:
    """Return the ports other than ssh that a machine with these roles opens to the cluster."""
    by_role = [PORTS[role] for role in roles if role in PORTS]
    return sorted({port for ports in by_role for port in (ports.head if head else ports.others)})


def mlflow_tracking_uri(head: Host) -> str:
    """Return the address of the head's MLflow server, as every machine of the cluster reaches it."""
    return f"http://{head.cluster_address}:{MLFLOW}"
