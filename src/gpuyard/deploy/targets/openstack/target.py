"""Servers in an OpenStack cloud, public or private."""

from collections.abc import Mapping
from typing import Any, ClassVar

from gpuyard.deploy.state import StateDirectory
from gpuyard.deploy.targets.base import get_target_spec
from gpuyard.deploy.targets.private_network import PrivateNetworkProvisioner
from gpuyard.specs.cluster import Cluster
from gpuyard.specs.deployment import Deployment
from gpuyard.specs.targets.clouds import OpenstackTarget


class OpenstackProvisioner(PrivateNetworkProvisioner):
    """Creates a network behind a router, servers in it, and one floating IP address."""

    kind: ClassVar[str] = "openstack"

    def check(self, deployment: Deployment, cluster: Cluster) -> None:
        """Check nothing, because only the cloud knows its flavors."""

    def variables(
        self, deployment: Deployment, cluster: Cluster, state: StateDirectory
    ) -> Mapping[str, Any]:
        spec = get_target_spec(deployment, OpenstackTarget)
        return {
            **self.common_variables(deployment, cluster, state),
            "flavor": spec.flavor,
            "image": spec.image,
            "external_network": spec.external_network,
            "name_servers": spec.name_servers,
        }

    def usd_per_hour(self, deployment: Deployment, cluster: Cluster) -> float | None:
        usd = get_target_spec(deployment, OpenstackTarget).usd_per_hour
        return None if usd is None else usd * cluster.nodes
