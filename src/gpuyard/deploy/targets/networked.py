"""What clouds with an official Terraform provider have in common: a network with one door, and a state that lists it."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from gpuyard.catalog.prices import Price, prices
from gpuyard.deploy.state import Host, StateDirectory, public_key
from gpuyard.deploy.targets.base import Provisioner
from gpuyard.deploy.terraform.run import Terraform
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.hardware.clusters import machine_of
from gpuyard.specs.cluster import Cluster
from gpuyard.specs.deployment import Deployment


class NetworkedProvisioner(Provisioner):
    """ssh comes in at the head; the others are reached through it, by their inside addresses."""

    rented: ClassVar[bool] = True
    user: ClassVar[str] = "ubuntu"

    def common(
        self, deployment: Deployment, cluster: Cluster, state: StateDirectory
    ) -> dict[str, Any]:
        """Variables that every one of these modules has."""
        target = deployment.target
        return {
            "prefix": f"gpuyard-{state.name}-{state.token()}",
            "nodes": cluster.nodes,
            "ssh_from": getattr(target, "ssh_from", ""),
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
                first_contact=True,
                through_head=index > 0,
                own_key=True,
            )
            for index, host in enumerate(outputs["hosts"])
        )

    def claim(self, state: StateDirectory) -> None:
        if left := self.sweep(state):
            raise GpuyardError(f"an earlier `up` was killed while it made machines: {left[0]}")

    def sweep(self, state: StateDirectory) -> list[str]:
        """Only Terraform's state knows what is there, and of a run that was killed it may know nothing."""
        written = Terraform(state.terraform).state
        if not written.perhaps_lost:
            return []
        name = f"gpuyard-{state.name}-{state.token()}"
        return [
            f"look in the cloud's console for what is named {name}, and remove it and then {written.mark}"
        ]

    def standing(self, state: StateDirectory) -> list[str]:
        return Terraform(state.terraform).identities()

    def notes(self) -> Sequence[str]:
        return ("Machines alone are priced: disks, addresses and traffic are billed besides.",)


def list_price(cloud: str, instance: str, gpus: int) -> Price | None:
    """The catalog's, where it has this instance with so many GPUs."""
    rows = (row for row in prices() if row.cloud == cloud and row.instance == instance)
    return next((row for row in rows if row.gpus == gpus), None)


def check_gpus(cloud: str, instance: str, cluster: Cluster) -> None:
    """Raises where the catalog knows that this instance has another number of GPUs."""
    _, machine = machine_of(cluster)
    known = {row.gpus for row in prices() if row.cloud == cloud and row.instance == instance}
    if known and machine.gpus not in known:
        there = " or ".join(str(gpus) for gpus in sorted(known))
        raise UserMistake(
            f"the cluster's machines have {machine.gpus} GPUs, and {instance} has {there}"
        )
