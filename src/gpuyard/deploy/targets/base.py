"""The interface between a deployment and its target, and helpers that several targets share."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from typing import Any, ClassVar, TypeVar

from gpuyard.deploy import StatusCallback
from gpuyard.deploy.state import Host, StateDirectory
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.specs.cluster import Cluster
from gpuyard.specs.deployment import Deployment

Spec = TypeVar("Spec")
Resource = TypeVar("Resource")


class Provisioner(ABC):
    """A source of machines. Provisioners hold no state."""

    kind: ClassVar[str]
    rented: ClassVar[bool] = False
    """True if its machines cost money while they exist."""
    power_off_effect: ClassVar[str] = ""
    """The end of a sentence: how a machine that powers itself off stops costing money; empty if it does not."""
    repairs_ssh: ClassVar[bool] = False
    """Terraform finds machines that do not answer ssh, and `up` repairs them."""

    shared_is_on_head: ClassVar[bool] = True
    """The shared storage is lost with the first machine, not only with the whole deployment."""

    @abstractmethod
    def check(self, deployment: Deployment, cluster: Cluster) -> None:
        """Raise if this machine cannot use the target, or the target cannot provide what the deployment needs."""

    def module(self) -> str | None:
        """Return the Terraform module next to the target; None if the machines already exist."""
        folder = resources.files(type(self).__module__.rpartition(".")[0])
        module = folder.joinpath("main.tf")
        return module.read_text(encoding="utf-8") if module.is_file() else None

    def variables(
        self, deployment: Deployment, cluster: Cluster, state: StateDirectory
    ) -> Mapping[str, Any]:
        """Return the variables of the Terraform module."""
        del deployment, cluster, state
        return {}

    @abstractmethod
    def hosts(self, deployment: Deployment, outputs: Mapping[str, Any]) -> tuple[Host, ...]:
        """Return the machines, of which the first is the head."""

    def usd_per_hour(self, deployment: Deployment, cluster: Cluster) -> float | None:
        """Return the price of all machines, or None if it is unknown."""
        del deployment, cluster
        return 0.0

    def availability(self, deployment: Deployment) -> Sequence[str]:
        """Return a sentence for each thing that is unavailable at the moment."""
        del deployment
        return ()

    def check_before_create(self, deployment: Deployment) -> None:
        """Raise if the machines could not be used, before anything that costs money is created."""
        del deployment

    def check_unclaimed(self, state: StateDirectory) -> None:
        """Raise if someone else uses the deployment's name, or a killed run left machines that only the user can find."""
        del state

    def claim(self, state: StateDirectory) -> None:
        """Prepare for creating the first machine. Removes machines that a killed run created but did not record."""
        del state

    def prepare(self, deployment: Deployment, report: StatusCallback) -> None:
        """Provide what takes long and has its own progress, before Terraform creates machines."""
        del deployment, report

    def list_existing(self, state: StateDirectory) -> list[str]:
        """Return what the service reports for this deployment, regardless of Terraform's state."""
        del state
        return []

    def remove_untracked(self, state: StateDirectory) -> list[str]:
        """Remove what Terraform's state does not contain; return what remains."""
        del state
        return []

    def restart(self, state: StateDirectory, index: int) -> None:
        """Stop a machine, so that `up` starts it again with its disk."""
        name = state.hosts()[index].name
        raise UserMistake(
            f"gpuyard restarts only machines of a lab; restart {name} with: gpuyard deploy ssh FILE {name} sudo reboot"
        )

    def link_rates(self, cluster: Cluster) -> tuple[float, ...]:
        """Return the link rates that a bench measures, in bytes per second; none if the target cannot set them."""
        del cluster
        return ()

    def set_link_rate(self, state: StateDirectory, rate_bytes_per_second: float) -> None:
        """Set the link rate of every machine until it is set again."""
        del state, rate_bytes_per_second
        raise GpuyardError(f"a target of kind {self.kind!r} cannot set the rate of its links")

    def environment(self, deployment: Deployment) -> str | None:
        """Return a Python environment with gpuyard that the machines already have."""
        return deployment.environment

    def ansible_variables(self) -> Mapping[str, Any]:
        """Return role variables for machines that differ from ordinary ones."""
        return {}

    def notes(self, deployment: Deployment) -> Sequence[str]:
        """Return sentences that a user should read before `up`."""
        return (self._describe_end(deployment),) if self.rented else ()

    def _describe_end(self, deployment: Deployment) -> str:
        """Say what ends the machines while this computer is off; `find_poweroff_time` sets it."""
        target = deployment.target
        if getattr(target, "ttl", None) is None:
            return "Nothing ends the machines, because `ttl` is null: they cost money until `gpuyard deploy down`."
        sentence = "Nothing ends the machines while this computer is off"
        if not self.power_off_effect:
            return f"{sentence}: they then cost money until it is on again."
        if "ttl" not in target.model_fields_set:
            return f"{sentence}, because the file has no `ttl`. Write one, so that they power themselves off."
        return (
            "Shortly after that time, the machines power themselves off, even if this computer is off, "
            f"{self.power_off_effect}."
        )


def get_target_spec(deployment: Deployment, kind: type[Spec]) -> Spec:
    """Return the deployment's target, which must be of this type."""
    target = deployment.target
    if not isinstance(target, kind):
        raise TypeError(f"expected a deployment of {kind.__name__}, got {target.kind}")
    return target


def check_node_count(cluster: Cluster, max_nodes: int, limit: str) -> None:
    """Raise, with the limit described in words, if the cluster has more machines."""
    if cluster.nodes > max_nodes:
        raise UserMistake(f"{limit}, and the cluster has {cluster.nodes} machines")


def remove_each(items: Iterable[Resource], remove: Callable[[Resource], object]) -> list[str]:
    """Remove each resource even if others fail; return those that remain, each with its error."""
    remaining = []
    for resource in items:
        try:
            remove(resource)
        except GpuyardError as error:
            remaining.append(f"{resource}: {error}")
    return remaining


def host_from_output(
    output: Mapping[str, Any], *, proxy_command: str, private_address: str = ""
) -> Host:
    """Return a testbed machine from its Terraform output; its host key is not known yet."""
    return Host(
        output["name"],
        output["address"],
        output["user"],
        int(output["port"]),
        proxy_command=proxy_command,
        private_address=private_address,
        trust_on_first_use=True,
        machine_id=output.get("machine_id", ""),
        uses_gpuyard_key=True,
    )
