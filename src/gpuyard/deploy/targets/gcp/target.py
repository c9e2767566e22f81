"""Instances at Google Compute Engine, with a compact placement policy."""

from collections.abc import Mapping
from typing import Any, ClassVar

from gpuyard.deploy.state import StateDirectory
from gpuyard.deploy.targets.base import get_target_spec
from gpuyard.deploy.targets.private_network import (
    PrivateNetworkProvisioner,
    check_gpu_count,
    find_list_price,
)
from gpuyard.hardware.clusters import resolve_machine
from gpuyard.specs.cluster import Cluster
from gpuyard.specs.deployment import Deployment
from gpuyard.specs.targets.clouds import GcpTarget

_CLOUD = "gcp"
_PRICED_REGION = "us-central1"  # the region of the catalog's prices, as their notes state


class GcpProvisioner(PrivateNetworkProvisioner):
    """Creates a network with one subnetwork, and instances without a service account in it."""

    kind: ClassVar[str] = "gcp"

    def check(self, deployment: Deployment, cluster: Cluster) -> None:
        spec = get_target_spec(deployment, GcpTarget)
        if spec.accelerator is None:
            check_gpu_count(_CLOUD, spec.machine_type, cluster)

    def variables(
        self, deployment: Deployment, cluster: Cluster, state: StateDirectory
    ) -> Mapping[str, Any]:
        spec = get_target_spec(deployment, GcpTarget)
        _, machine = resolve_machine(cluster)
        return {
            **self.common_variables(deployment, cluster, state),
            "project": spec.project,
            "zone": spec.zone,
            "machine_type": spec.machine_type,
            "accelerator": spec.accelerator,
            "gpus": machine.gpus,
            "image": spec.image,
            "disk_gb": spec.disk_gb,
            "user": self.user,
        }

    def usd_per_hour(self, deployment: Deployment, cluster: Cluster) -> float | None:
        spec = get_target_spec(deployment, GcpTarget)
        _, machine = resolve_machine(cluster)
        price = find_list_price(_CLOUD, spec.machine_type, machine.gpus)
        # The price of a machine type does not include GPUs that are added to it.
        if price is None or spec.accelerator or not spec.zone.startswith(_PRICED_REGION):
            return None
        return price.usd_per_hour * cluster.nodes
