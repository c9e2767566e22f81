"""Bare-metal servers on imec's Virtual Wall, joined by a network with the cluster's rate."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from gpuyard.deploy.clouds.jfed import PEM_VARIABLE, Jfed, Slice
from gpuyard.deploy.clouds.proxy import ssh_proxy_command
from gpuyard.deploy.clouds.rspec import build_request
from gpuyard.deploy.state import Host, StateDirectory, public_key
from gpuyard.deploy.targets.base import (
    Provisioner,
    check_node_count,
    get_target_spec,
    host_from_output,
    remove_each,
)
from gpuyard.deploy.terraform.run import Terraform
from gpuyard.hardware.clusters import find_network_rate
from gpuyard.specs.cluster import Cluster
from gpuyard.specs.deployment import Deployment
from gpuyard.specs.targets.testbeds import VirtualWallTarget

_MAX_NODES = 254  # addresses in the slice's network
_SECONDS_PER_HOUR = 3600


class VirtualWallProvisioner(Provisioner):
    """Requests all machines as one slice, which the testbed grants as a whole or not at all."""

    kind: ClassVar[str] = "virtual-wall"

    def check(self, deployment: Deployment, cluster: Cluster) -> None:
        del deployment
        check_node_count(cluster, _MAX_NODES, f"a slice's network has {_MAX_NODES} addresses")

    def variables(
        self, deployment: Deployment, cluster: Cluster, state: StateDirectory
    ) -> Mapping[str, Any]:
        spec = get_target_spec(deployment, VirtualWallTarget)
        return {
            "name": f"gpuyard-{state.ensure_token()}",  # slice names have at most 19 characters
            "project": spec.project,
            "lifetime_hours": math.ceil(spec.ttl / _SECONDS_PER_HOUR),
            "request": build_request(spec, cluster.nodes, find_network_rate(cluster), public_key()),
        }

    def hosts(self, deployment: Deployment, outputs: Mapping[str, Any]) -> tuple[Host, ...]:
        spec = get_target_spec(deployment, VirtualWallTarget)
        return tuple(
            host_from_output(
                host,
                private_address=host["private_address"],
                proxy_command=_proxy_command(spec, host["address"], int(host["port"])),
            )
            for host in outputs["hosts"]
        )

    def check_before_create(self, deployment: Deployment) -> None:
        del deployment
        Jfed.from_environment()

    def list_existing(self, state: StateDirectory) -> list[str]:
        slice_ = _read_slice(state)
        if slice_ is None:
            return []
        status = Jfed.from_environment().status(slice_)
        return [f"slice {slice_.name} ({status.lower()})"] if status else []

    def remove_untracked(self, state: StateDirectory) -> list[str]:
        """Delete a slice whose request was interrupted."""
        slice_ = _read_slice(state)
        return remove_each(
            [slice_] if slice_ else [], lambda slice_: Jfed.from_environment().delete(slice_)
        )

    def notes(self, deployment: Deployment) -> Sequence[str]:
        del deployment
        return ("The Virtual Wall reinstalls every machine, which takes several minutes.",)


def _proxy_command(spec: VirtualWallTarget, address: str, port: int) -> str:
    if spec.bastion is None:
        return ""
    user, _, host = spec.bastion.partition("@")
    return ssh_proxy_command(PEM_VARIABLE, (host, 22, user), address, port)


def _read_slice(state: StateDirectory) -> Slice | None:
    """Return the slice in the variables of the last `up`; None before the first."""
    if not Path(state.terraform).is_dir():
        return None
    variables = Terraform(state.terraform).variables()
    try:
        return Slice(variables["name"], variables["project"], variables["request"])
    except KeyError:
        return None
