"""Shared code of clouds with an official Terraform provider: a private network that only ssh to the head enters."""

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar

from gpuyard.catalog.prices import Price, prices
from gpuyard.deploy.clouds.public_address import find_public_address
from gpuyard.deploy.state import Host, StateDirectory, public_key
from gpuyard.deploy.targets.base import Provisioner
from gpuyard.deploy.terraform.run import Terraform
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.hardware.clusters import resolve_machine
from gpuyard.specs.cluster import Cluster
from gpuyard.specs.deployment import Deployment
from gpuyard.specs.targets.clouds import HERE

_OWN_RESOURCE = "terraform_data."  # exists only in Terraform's state


class PrivateNetworkProvisioner(Provisioner):
    """A target whose head is public, and whose other machines are reached through it by private addresses."""

    rented: ClassVar[bool] = True
    user: ClassVar[str] = "ubuntu"

    def common_variables(
        self, deployment: Deployment, cluster: Cluster, state: StateDirectory
    ) -> dict[str, Any]:
        """Return the variables that all of these modules have."""
        target = deployment.target
        return {
            "prefix": state.ensure_prefix(),
            "nodes": cluster.nodes,
            "ssh_from": _resolve_ssh_from(getattr(target, "ssh_from", HERE), state),
            "near": bool(getattr(target, "near", False)) and cluster.nodes > 1,
            "public_key": public_key(),
        }

    def hosts(self, deployment: Deployment, outputs: Mapping[str, Any]) -> tuple[Host, ...]:
        user = getattr(deployment.target, "user", self.user)
        return tuple(
            Host(
                host["name"],
                host["address"],
                user,
                private_address=host["private_address"],
                trust_on_first_use=True,
                machine_id=host["machine_id"],
                through_head=index > 0,
                uses_gpuyard_key=True,
            )
            for index, host in enumerate(outputs["hosts"])
        )

    def check_unclaimed(self, state: StateDirectory) -> None:
        if remaining := self.remove_untracked(state):
            raise GpuyardError(
                f"an earlier `up` was killed while it created machines: {remaining[0]}"
            )

    def remove_untracked(self, state: StateDirectory) -> list[str]:
        """Ask the user to look, because only Terraform's state records what exists, and a killed run may not save it."""
        state_file = Terraform(state.terraform).state
        if not state_file.may_be_lost:
            return []
        return [
            f"look in the cloud's console for resources named {state.ensure_prefix()}, remove them, and then remove "
            f"{state_file.marker}"
        ]

    def list_existing(self, state: StateDirectory) -> list[str]:
        resources = Terraform(state.terraform).list_resources()
        return [resource for resource in resources if not resource.startswith(_OWN_RESOURCE)]

    def notes(self, deployment: Deployment) -> Sequence[str]:
        return (
            "The price covers machines only; the cloud also bills disks, addresses, and traffic.",
            *super().notes(deployment),
            *_find_own_exclusion(getattr(deployment.target, "ssh_from", HERE)),
        )


def _resolve_ssh_from(ssh_from: str, state: StateDirectory) -> str:
    """Return the addresses, with this machine's for `here`. If they cannot be found, those of the last `up` stay."""
    if ssh_from != HERE:
        return ssh_from
    try:
        return f"{find_public_address()}/32"
    except GpuyardError:
        previous = Terraform(state.terraform).variables().get("ssh_from")
        if isinstance(previous, str):
            return previous
        raise


def _find_own_exclusion(ssh_from: str) -> Iterator[str]:
    """Yield a sentence if only other public addresses may reach the head, as far as this machine's can be found."""
    if ssh_from == HERE or not (network := ipaddress.IPv4Network(ssh_from)).is_global:
        return
    with suppress(GpuyardError):
        address = find_public_address()
        if ipaddress.IPv4Address(address) not in network:
            yield (
                f"This machine's public address {address} is not in ssh_from ({ssh_from}), so from here you could not reach "
                f"the machines that you pay for: write `{HERE}`, or run gpuyard from one of those addresses."
            )


def check_ssh_from(ssh_from: str) -> None:
    """Raise if only private addresses may reach a head whose address is public."""
    if ssh_from == HERE:
        return
    network = ipaddress.IPv4Network(ssh_from)
    if network.is_private and not network.is_global:
        raise UserMistake(
            f"ssh_from is {ssh_from}, a private network, and the head has a public address, which it would never reach: "
            f"write the public address of your connection, or `{HERE}`"
        )


def find_list_price(cloud: str, instance: str, gpus: int) -> Price | None:
    """Return the catalog's price of this instance with this number of GPUs."""
    rows = (row for row in prices() if row.cloud == cloud and row.instance == instance)
    return next((row for row in rows if row.gpus == gpus), None)


def check_gpu_count(cloud: str, instance: str, cluster: Cluster) -> None:
    """Raise if the catalog lists this instance with another number of GPUs."""
    _, machine = resolve_machine(cluster)
    counts = {row.gpus for row in prices() if row.cloud == cloud and row.instance == instance}
    if counts and machine.gpus not in counts:
        listed = " or ".join(str(gpus) for gpus in sorted(counts))
        raise UserMistake(
            f"the cluster's machines have {machine.gpus} GPUs, and {instance} has {listed}"
        )
