"""What a deployment asks of the target that it names."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from gpuyard.deploy.state import Host, StateDirectory
from gpuyard.specs.cluster import Cluster
from gpuyard.specs.deployment import Deployment


class Target(ABC):
    """One way to come by machines; without state."""

    kind: ClassVar[str]
    rented: ClassVar[bool] = False
    """Its machines cost money while they are there."""

    @abstractmethod
    def check(self, deployment: Deployment, cluster: Cluster) -> None:
        """Raises where this machine can't do it, or the deployment asks for what it does not have."""

    def module(self) -> str | None:
        """Terraform's, or none where machines are there already."""
        return None

    def variables(
        self, deployment: Deployment, cluster: Cluster, state: StateDirectory
    ) -> Mapping[str, Any]:
        """Of that module."""
        del deployment, cluster, state
        return {}

    @abstractmethod
    def hosts(self, deployment: Deployment, outputs: Mapping[str, Any]) -> tuple[Host, ...]:
        """The machines, the head first."""

    def usd_per_hour(self, deployment: Deployment, cluster: Cluster) -> float:
        """What they cost while they are there."""
        del deployment, cluster
        return 0.0

    def availability(self, deployment: Deployment) -> Sequence[str]:
        """What can't be had at this moment."""
        del deployment
        return ()

    def check_orders(self, deployment: Deployment) -> None:
        """Raises before anything is made that costs money, where it can't be of use."""
        del deployment

    def standing(self, state: StateDirectory) -> list[str]:
        """What its owner says is there of this deployment, whatever Terraform knows of."""
        del state
        return []

    def sweep(self, state: StateDirectory) -> list[str]:
        """Remove what Terraform does not know of; what remains."""
        del state
        return []

    def environment(self, deployment: Deployment) -> str | None:
        """A Python environment with gpuyard that machines have without a deployment."""
        return deployment.environment

    def ansible_variables(self) -> Mapping[str, Any]:
        """For roles, where machines of this target are not like others."""
        return {}

    def notes(self) -> Sequence[str]:
        """What people should know before `up`."""
        return ()
