"""Instances of Google Compute Engine, with a compact placement policy."""

from collections.abc import Mapping
from typing import Any, ClassVar

from gpuyard.deploy.state import StateDirectory
from gpuyard.deploy.targets.base import spec_of
from gpuyard.deploy.targets.networked import NetworkedProvisioner, check_gpus, list_price
from gpuyard.hardware.clusters import machine_of
from gpuyard.specs.cluster import Cluster
from gpuyard.specs.deployment import Deployment
from gpuyard.specs.targets.clouds import GcpTarget

_CLOUD = "gcp"
_PRICED_REGION = "us-central1"  # that of the catalog's rows, as their notes say


class GcpProvisioner(NetworkedProvisioner):
    """A network of its own, one subnetwork, and instances in it, without a service account."""

    kind: ClassVar[str] = "gcp"

    def check(self, deployment: Deployment, cluster: Cluster) -> None:
        wanted = spec_of(deployment, GcpTarget)
        if wanted.accelerator is None:
            check_gpus(_CLOUD, wanted.machine_type, cluster)

    def variables(
        self, deployment: Deployment, cluster: Cluster, state: StateDirectory
    ) -> Mapping[str, Any]:
        wanted = spec_of(deployment, GcpTarget)
        _, machine = machine_of(cluster)
        return {
            **self.common(deployment, cluster, state),
            "project": wanted.project,
            "zone": wanted.zone,
            "machine_type": wanted.machine_type,
            "accelerator": wanted.accelerator,
            "gpus": machine.gpus,
            "image": wanted.image,
            "disk_gb": wanted.disk_gb,
            "user": self.user,
        }

    def usd_per_hour(self, deployment: Deployment, cluster: Cluster) -> float | None:
        wanted = spec_of(deployment, GcpTarget)
        _, machine = machine_of(cluster)
        price = list_price(_CLOUD, wanted.machine_type, machine.gpus)
        # GPUs that are added to a machine type cost what its row does not say
        if price is None or wanted.accelerator or not wanted.zone.startswith(_PRICED_REGION):
            return None
        return price.usd_per_hour * cluster.nodes
