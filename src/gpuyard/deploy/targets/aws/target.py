"""Instances of AWS EC2, with a placement group and Elastic Fabric Adapters."""

from collections.abc import Mapping
from typing import Any, ClassVar

from gpuyard.deploy.state import StateDirectory
from gpuyard.deploy.targets.base import spec_of
from gpuyard.deploy.targets.networked import NetworkedProvisioner, check_gpus, list_price
from gpuyard.errors import UserMistake
from gpuyard.hardware.clusters import machine_of
from gpuyard.specs.cluster import Cluster
from gpuyard.specs.deployment import Deployment
from gpuyard.specs.targets.clouds import AwsTarget

_CLOUD = "aws"


class AwsProvisioner(NetworkedProvisioner):
    """A VPC of its own, one subnet, and instances in it."""

    kind: ClassVar[str] = "aws"

    def check(self, deployment: Deployment, cluster: Cluster) -> None:
        wanted = spec_of(deployment, AwsTarget)
        check_gpus(_CLOUD, wanted.instance_type, cluster)
        if wanted.zone is not None and not wanted.zone.startswith(wanted.region):
            raise UserMistake(f"the zone {wanted.zone} is not in the region {wanted.region}")

    def variables(
        self, deployment: Deployment, cluster: Cluster, state: StateDirectory
    ) -> Mapping[str, Any]:
        wanted = spec_of(deployment, AwsTarget)
        return {
            **self.common(deployment, cluster, state),
            "region": wanted.region,
            "zone": wanted.zone,
            "instance_type": wanted.instance_type,
            "image": wanted.image,
            "disk_gb": wanted.disk_gb,
            "efa_interfaces": wanted.efa_interfaces,
        }

    def usd_per_hour(self, deployment: Deployment, cluster: Cluster) -> float | None:
        wanted = spec_of(deployment, AwsTarget)
        _, machine = machine_of(cluster)
        price = list_price(_CLOUD, wanted.instance_type, machine.gpus)
        if price is None or price.region != wanted.region:  # prices differ between regions
            return None
        return price.usd_per_hour * cluster.nodes
