"""Instances at Google Compute Engine, with a compact placement policy."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from gpuyard.catalog.hardware import find_end_of_life
from gpuyard.catalog.prices import instance_networks, prices
from gpuyard.deploy.expiry import calculate_lifetime
from gpuyard.deploy.state import StateDirectory
from gpuyard.deploy.targets.base import get_target_spec
from gpuyard.deploy.targets.private_network import (
    PrivateNetworkProvisioner,
    check_gpu_count,
    check_ssh_from,
    find_list_price,
)
from gpuyard.hardware.clusters import resolve_machine
from gpuyard.specs.cluster import Cluster
from gpuyard.specs.deployment import Deployment
from gpuyard.specs.targets.clouds import GcpTarget

_CLOUD = "gcp"
_TCPX, _ROCE = ("tcpx-", "tcpxo-"), ("roce-",)
# Canonical's images for Compute Engine, with and without NVIDIA's driver
_GPU_IMAGE = "ubuntu-os-accelerator-images/ubuntu-accelerator-2404-amd64-with-nvidia-580"
_PLAIN_IMAGE = "ubuntu-os-cloud/ubuntu-2404-lts-amd64"
_PRICED_REGION = "us-central1"  # the region of the catalog's prices, as their notes state


class GcpProvisioner(PrivateNetworkProvisioner):
    """Creates a network with one subnetwork, and instances without a service account in it."""

    kind: ClassVar[str] = "gcp"
    power_off_effect: ClassVar[str] = "so that only their disks cost money"

    def check(self, deployment: Deployment, cluster: Cluster) -> None:
        spec = get_target_spec(deployment, GcpTarget)
        check_ssh_from(spec.ssh_from)
        if spec.accelerator is None:
            check_gpu_count(_CLOUD, spec.machine_type, cluster)

    def variables(
        self, deployment: Deployment, cluster: Cluster, state: StateDirectory
    ) -> Mapping[str, Any]:
        spec = get_target_spec(deployment, GcpTarget)
        gpu, machine = resolve_machine(cluster)
        plain = gpu.vendor != "NVIDIA" or find_end_of_life(gpu) is not None
        return {
            **self.common_variables(deployment, cluster, state),
            "project": spec.project,
            "zone": spec.zone,
            "machine_type": spec.machine_type,
            "accelerator": spec.accelerator,
            "gpus": machine.gpus,
            "image": spec.image or (_PLAIN_IMAGE if plain else _GPU_IMAGE),
            "spot": spec.spot,
            "lifetime_seconds": calculate_lifetime(spec.ttl),
            "rails": _find_rails(spec.machine_type, _ROCE) if cluster.nodes > 1 else 0,
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
        usd = price.spot_usd_per_hour if spec.spot else price.usd_per_hour
        return None if usd is None else usd * cluster.nodes

    def availability(self, deployment: Deployment) -> Sequence[str]:
        """Report machine types whose fast network gpuyard does not set up."""
        machine_type = get_target_spec(deployment, GcpTarget).machine_type
        rails = _find_rails(machine_type, _TCPX)
        if not rails:
            return ()
        return (
            f"gpuyard gives {machine_type} one network card. Its other {rails} cards and GPUDirect are not set up, so "
            "training between machines is slower than predicted.",
        )


def _find_rails(machine_type: str, link_prefixes: tuple[str, ...]) -> int:
    """Return the number of GPU network cards of a machine type if their kind is one of these, otherwise 0."""
    for row in prices():
        if row.cloud == _CLOUD and row.instance == machine_type:
            network = instance_networks().get(row.id)
            if network is not None and (network.link or "").startswith(link_prefixes):
                return network.rails
    return 0
