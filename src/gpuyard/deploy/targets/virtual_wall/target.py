"""Bare-metal servers of imec's Virtual Wall, with a network between them that is shaped as the cluster says."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from gpuyard.deploy.clouds.jfed import PEM_VARIABLE, Jfed, Slice
from gpuyard.deploy.clouds.way_in import through
from gpuyard.deploy.state import Host, StateDirectory, public_key
from gpuyard.deploy.targets.base import Provisioner, check_most, installed_host, not_ended, spec_of
from gpuyard.deploy.targets.virtual_wall.rspec import request
from gpuyard.deploy.terraform.run import Terraform
from gpuyard.hardware.clusters import network_rate
from gpuyard.specs.cluster import Cluster
from gpuyard.specs.deployment import Deployment
from gpuyard.specs.targets.testbeds import VirtualWallTarget

_MOST_NODES = 254  # addresses of the network between them
_SECONDS_PER_HOUR = 3600


class VirtualWallProvisioner(Provisioner):
    """All machines are one slice: the testbed gives them together, or none."""

    kind: ClassVar[str] = "virtual-wall"

    def check(self, deployment: Deployment, cluster: Cluster) -> None:
        del deployment
        check_most(cluster, _MOST_NODES, f"a slice's network has {_MOST_NODES} addresses")

    def variables(
        self, deployment: Deployment, cluster: Cluster, state: StateDirectory
    ) -> Mapping[str, Any]:
        wanted = spec_of(deployment, VirtualWallTarget)
        return {
            "name": f"gpuyard-{state.token()}",  # a slice's name has 19 characters at most
            "project": wanted.project,
            "hours": math.ceil(wanted.ttl / _SECONDS_PER_HOUR),
            "request": request(wanted, cluster.nodes, network_rate(cluster), public_key()),
        }

    def hosts(self, deployment: Deployment, outputs: Mapping[str, Any]) -> tuple[Host, ...]:
        wanted = spec_of(deployment, VirtualWallTarget)
        return tuple(
            installed_host(
                host,
                private_address=host["private_address"],
                proxy_command=_way(wanted, host["address"], int(host["port"])),
            )
            for host in outputs["hosts"]
        )

    def check_orders(self, deployment: Deployment) -> None:
        del deployment
        Jfed.of_user()

    def standing(self, state: StateDirectory) -> list[str]:
        ours = _slice(state)
        if ours is None:
            return []
        status = Jfed.of_user().status(ours)
        return [f"slice {ours.name} ({status.lower()})"] if status else []

    def sweep(self, state: StateDirectory) -> list[str]:
        """Of a request whose answer never came."""
        ours = _slice(state)
        return not_ended([ours] if ours else [], lambda one: Jfed.of_user().end(one))

    def notes(self) -> Sequence[str]:
        return ("The Virtual Wall installs every machine anew, which takes some minutes.",)


def _way(wanted: VirtualWallTarget, address: str, port: int) -> str:
    if wanted.bastion is None:
        return ""
    user, _, host = wanted.bastion.partition("@")
    return through(PEM_VARIABLE, (host, 22, user), address, port)


def _slice(state: StateDirectory) -> Slice | None:
    """What Terraform was told to make; none where it never was."""
    if not Path(state.terraform).is_dir():
        return None
    told = Terraform(state.terraform).variables()
    try:
        return Slice(told["name"], told["project"], told["request"])
    except KeyError:
        return None
