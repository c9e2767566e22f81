"""Ports that each role opens to the cluster's other machines; ssh is everybody's, and nothing else is anybody's."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuyard.specs.deployment import RoleName

SSH = 22


@dataclass(frozen=True)
class Ports:
    """Of the head, and of each other machine."""

    head: tuple[int, ...]
    others: tuple[int, ...]


PORTS: dict[RoleName, Ports] = {
    "shared-storage": Ports((111, 2049), (111,)),  # where it is NFS
    "slurm": Ports((6817, 6818, 6819), (6818,)),
    "monitoring": Ports((9100, 9400), (9100, 9400)),
}


def ports_of(roles: Sequence[RoleName], *, head: bool) -> list[int]:
    """What a machine with these roles may show to the others, beside ssh."""
    opened = [PORTS[role] for role in roles if role in PORTS]
    return sorted({port for ports in opened for port in (ports.head if head else ports.others)})
