"""Servers of an OpenStack, public or your own institute's."""

from collections.abc import Mapping
from typing import Any, ClassVar

from gpuyard.deploy.state import StateDirectory
from gpuyard.deploy.targets.base import spec_of
from gpuyard.deploy.targets.networked import NetworkedProvisioner
from gpuyard.specs.cluster import Cluster
from gpuyard.specs.deployment import Deployment
from gpuyard.specs.targets.clouds import OpenstackTarget


class OpenstackProvisioner(NetworkedProvisioner):
    """A network behind a router, servers in it, and one floating address."""

    kind: ClassVar[str] = "openstack"

    def check(self, deployment: Deployment, cluster: Cluster) -> None:
        """Only the cloud knows its flavors."""

    def variables(
        self, deployment: Deployment, cluster: Cluster, state: StateDirectory
    ) -> Mapping[str, Any]:
        wanted = spec_of(deployment, OpenstackTarget)
        return {
            **self.common(deployment, cluster, state),
            "flavor": wanted.flavor,
            "image": wanted.image,
            "external_network": wanted.external_network,
            "name_servers": wanted.name_servers,
        }

    def usd_per_hour(self, deployment: Deployment, cluster: Cluster) -> float | None:
        usd = spec_of(deployment, OpenstackTarget).usd_per_hour
        return None if usd is None else usd * cluster.nodes
