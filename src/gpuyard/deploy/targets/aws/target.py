"""Instances at AWS EC2, with a placement group and Elastic Fabric Adapters."""

from collections.abc import Mapping
from typing import Any, ClassVar

from gpuyard.deploy.state import StateDirectory
from gpuyard.deploy.targets.base import get_target_spec
from gpuyard.deploy.targets.private_network import (
    PrivateNetworkProvisioner,
    check_gpu_count,
    find_list_price,
)
from gpuyard.errors import UserMistake
from gpuyard.hardware.clusters import resolve_machine
from gpuyard.specs.cluster import Cluster
from gpuyard.specs.deployment import Deployment
from gpuyard.specs.targets.clouds import AwsTarget

_CLOUD = "aws"


class AwsProvisioner(PrivateNetworkProvisioner):
    """Creates a VPC with one subnet, and instances in it."""

    kind: ClassVar[str] = "aws"

    def check(self, deployment: Deployment, cluster: Cluster) -> None:
        spec = get_target_spec(deployment, AwsTarget)
        check_gpu_count(_CLOUD, spec.instance_type, cluster)
        if spec.zone is not None and not spec.zone.startswith(spec.region):
            raise UserMistake(f"the zone {spec.zone} is not in the region {spec.region}")

    def variables(
        self, deployment: Deployment, cluster: Cluster, state: StateDirectory
    ) -> Mapping[str, Any]:
        spec = get_target_spec(deployment, AwsTarget)
        return {
            **self.common_variables(deployment, cluster, state),
            "region": spec.region,
            "zone": spec.zone,
            "instance_type": spec.instance_type,
            "image": spec.image,
            "disk_gb": spec.disk_gb,
            "efa_interfaces": spec.efa_interfaces,
        }

    def usd_per_hour(self, deployment: Deployment, cluster: Cluster) -> float | None:
        spec = get_target_spec(deployment, AwsTarget)
        _, machine = resolve_machine(cluster)
        price = find_list_price(_CLOUD, spec.instance_type, machine.gpus)
        if price is None or price.region != spec.region:  # prices differ between regions
            return None
        return price.usd_per_hour * cluster.nodes
