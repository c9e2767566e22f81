"""Instances at AWS EC2, with a placement group and Elastic Fabric Adapters."""

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from gpuyard.catalog.hardware import find_end_of_life
from gpuyard.catalog.prices import instance_networks
from gpuyard.deploy.expiry import calculate_lifetime
from gpuyard.deploy.state import StateDirectory
from gpuyard.deploy.targets.base import get_target_spec
from gpuyard.deploy.targets.private_network import (
    PrivateNetworkProvisioner,
    check_gpu_count,
    check_ssh_from,
    find_list_price,
)
from gpuyard.errors import UserMistake
from gpuyard.hardware.clusters import resolve_machine
from gpuyard.specs.cluster import Cluster
from gpuyard.specs.deployment import Deployment
from gpuyard.specs.targets.clouds import AwsTarget

_CLOUD = "aws"
_ARM = re.compile(r"(?:[a-z]+\d+g[a-z]*|p6e-gb\d+)\.")
# Amazon's Deep Learning Base image: NVIDIA's open driver, CUDA, fabric manager, and the libraries of EFA.
_GPU_IMAGE = (
    "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"
)
_PLAIN_IMAGE = "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
_FABRIC_ON_LATER_CARDS = ("p6-b300.",)  # their first card has no Elastic Fabric Adapter


class AwsProvisioner(PrivateNetworkProvisioner):
    """Creates a VPC with a public and a private subnet in one zone, and instances in them."""

    kind: ClassVar[str] = "aws"
    power_off_effect: ClassVar[str] = "which terminates them and deletes their disks"

    def check(self, deployment: Deployment, cluster: Cluster) -> None:
        spec = get_target_spec(deployment, AwsTarget)
        check_ssh_from(spec.ssh_from)
        if spec.zone is not None and not spec.zone.startswith(spec.region):
            raise UserMistake(f"the zone {spec.zone} is not in the region {spec.region}")
        if _ARM.match(spec.instance_type):
            raise UserMistake(
                f"{spec.instance_type} has ARM processors, and gpuyard's images and roles are for x86_64"
            )
        check_gpu_count(_CLOUD, spec.instance_type, cluster)

    def variables(
        self, deployment: Deployment, cluster: Cluster, state: StateDirectory
    ) -> Mapping[str, Any]:
        spec = get_target_spec(deployment, AwsTarget)
        gpu, _ = resolve_machine(cluster)
        # The open driver of Amazon's image does not support GPUs before Turing.
        plain = gpu.vendor != "NVIDIA" or find_end_of_life(gpu) is not None
        return {
            **self.common_variables(deployment, cluster, state),
            "region": spec.region,
            "zone": spec.zone,
            "instance_type": spec.instance_type,
            "image": spec.image,
            "image_parameter": _PLAIN_IMAGE if plain else _GPU_IMAGE,
            "disk_gb": spec.disk_gb,
            "efa_cards": _choose_efa_cards(spec, cluster),
            "market": None if spec.market == "on-demand" else spec.market,
            "capacity_reservation": spec.capacity_reservation,
            "lifetime_seconds": calculate_lifetime(spec.ttl),
        }

    def usd_per_hour(self, deployment: Deployment, cluster: Cluster) -> float | None:
        spec = get_target_spec(deployment, AwsTarget)
        _, machine = resolve_machine(cluster)
        price = find_list_price(_CLOUD, spec.instance_type, machine.gpus)
        if price is None or price.region != spec.region:  # prices differ between regions
            return None
        prices = {"on-demand": price.usd_per_hour, "spot": price.spot_usd_per_hour}
        usd = prices.get(spec.market)  # a capacity block is paid in advance
        return None if usd is None else usd * cluster.nodes


def _choose_efa_cards(spec: AwsTarget, cluster: Cluster) -> list[int]:
    """Return the network cards that get an Elastic Fabric Adapter; none for a single machine."""
    count = spec.efa_interfaces
    if count is None:
        name = f"{_CLOUD}/{spec.instance_type}"
        network = instance_networks().get(name) if name in instance_networks() else None
        has_fabric = network is not None and (network.link or "").startswith("efa-")
        count = network.rails if network is not None and has_fabric and cluster.nodes > 1 else 0
    first = 1 if spec.instance_type.startswith(_FABRIC_ON_LATER_CARDS) else 0
    return list(range(first, first + count))
