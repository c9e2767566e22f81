"""What a deployment asks of the target that it names."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from typing import Any, ClassVar, TypeVar

from gpuyard.deploy.state import Host, StateDirectory
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.specs.cluster import Cluster
from gpuyard.specs.deployment import Deployment

Spec = TypeVar("Spec")
Thing = TypeVar("Thing")


class Provisioner(ABC):
    """One way to come by machines; without state."""

    kind: ClassVar[str]
    rented: ClassVar[bool] = False
    """Its machines cost money while they are there."""

    @abstractmethod
    def check(self, deployment: Deployment, cluster: Cluster) -> None:
        """Raises where this machine can't do it, or the deployment asks for what it does not have."""

    def module(self) -> str | None:
        """Terraform's, which stands beside the target; none where machines are there already."""
        folder = resources.files(type(self).__module__.rpartition(".")[0])
        module = folder.joinpath("main.tf")
        return module.read_text(encoding="utf-8") if module.is_file() else None

    def variables(
        self, deployment: Deployment, cluster: Cluster, state: StateDirectory
    ) -> Mapping[str, Any]:
        """Of that module."""
        del deployment, cluster, state
        return {}

    @abstractmethod
    def hosts(self, deployment: Deployment, outputs: Mapping[str, Any]) -> tuple[Host, ...]:
        """The machines, the head first."""

    def usd_per_hour(self, deployment: Deployment, cluster: Cluster) -> float | None:
        """What they cost while they are there; None where nobody knows."""
        del deployment, cluster
        return 0.0

    def availability(self, deployment: Deployment) -> Sequence[str]:
        """What can't be had at this moment."""
        del deployment
        return ()

    def check_orders(self, deployment: Deployment) -> None:
        """Raises before anything is made that costs money, where it can't be of use."""
        del deployment

    def claim(self, state: StateDirectory) -> None:
        """Before the first is made: raises where another has its name, and clears away what a killed run made unwritten."""
        del state

    def standing(self, state: StateDirectory) -> list[str]:
        """What its owner says is there of this deployment, whatever Terraform knows of."""
        del state
        return []

    def sweep(self, state: StateDirectory) -> list[str]:
        """Remove what Terraform does not know of; what remains."""
        del state
        return []

    def link_rates(self, cluster: Cluster) -> tuple[float, ...]:
        """Of each machine's link in bytes per second, where it can set any: what a bench takes; else none."""
        del cluster
        return ()

    def set_link(self, state: StateDirectory, rate_bytes_per_second: float) -> None:
        """Of every machine, until it is set again."""
        del state, rate_bytes_per_second
        raise GpuyardError(f"a target of the kind {self.kind!r} can't set the speed of its links")

    def environment(self, deployment: Deployment) -> str | None:
        """A Python environment with gpuyard that machines have without a deployment."""
        return deployment.environment

    def ansible_variables(self) -> Mapping[str, Any]:
        """For roles, where machines of this target are not like others."""
        return {}

    def notes(self) -> Sequence[str]:
        """What people should know before `up`."""
        return ()


def spec_of(deployment: Deployment, kind: type[Spec]) -> Spec:
    """What the deployment's file says of its target."""
    target = deployment.target
    if not isinstance(target, kind):
        raise TypeError(f"expected a deployment of {kind.__name__}, got {target.kind}")
    return target


def check_most(cluster: Cluster, most: int, limit: str) -> None:
    """Raises with this limit in words where the cluster has more machines."""
    if cluster.nodes > most:
        raise UserMistake(f"{limit}, and the cluster has {cluster.nodes} machines")


def not_ended(things: Iterable[Thing], end: Callable[[Thing], None]) -> list[str]:
    """End each, whatever becomes of the others; what remains, with what was said of it."""
    left = []
    for thing in things:
        try:
            end(thing)
        except GpuyardError as error:
            left.append(f"{thing}: {error}")
    return left


def installed_host(
    made: Mapping[str, Any], *, proxy_command: str, private_address: str = ""
) -> Host:
    """A machine of a testbed, as its Terraform module names it: nobody has seen its key yet."""
    return Host(
        made["name"],
        made["address"],
        made["user"],
        int(made["port"]),
        proxy_command=proxy_command,
        private_address=private_address,
        first_contact=True,
        own_key=True,
    )
