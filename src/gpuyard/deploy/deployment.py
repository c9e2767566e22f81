"""What is done with a deployment: planned, brought up, and taken down; each can be done again after it was cut off."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gpuyard.catalog.specfiles import read_deployment
from gpuyard.deploy.ansible.package import environments, package_to_install
from gpuyard.deploy.ansible.run import PlayRecap, apply_roles, roles_of
from gpuyard.deploy.clouds.ttl import set_end
from gpuyard.deploy.stack.install import gpu_variables
from gpuyard.deploy.stack.lock import read_lock
from gpuyard.deploy.state import Host, StateDirectory
from gpuyard.deploy.targets import TARGETS
from gpuyard.deploy.targets.base import Provisioner
from gpuyard.deploy.terraform.run import Changes, Terraform
from gpuyard.errors import GpuyardError
from gpuyard.hardware.clusters import machine_of, read_cluster
from gpuyard.specs.cluster import Cluster
from gpuyard.specs.deployment import Deployment
from gpuyard.units import format_usd

Tell = Callable[[str], None]


@dataclass(frozen=True)
class DeploymentPlan:
    """What `up` would do now."""

    deployment: Deployment
    cluster: Cluster
    changes: Changes
    hosts: tuple[Host, ...]
    usd_per_hour: float | None
    notes: tuple[str, ...]
    ttl_seconds: float | None = None

    def machines(self) -> list[tuple[str, str, str]]:
        """Name, address and roles of each; what is not made yet has no address."""
        listed = []
        for index in range(self.cluster.nodes):
            host = self.hosts[index] if index < len(self.hosts) else None
            name = host.name if host else f"node{index}"
            address = host.address if host else ""
            listed.append((name, address, ", ".join(roles_of(self.deployment, index))))
        return listed


@dataclass(frozen=True)
class Opened:
    """A deployment's file with all that it names."""

    deployment: Deployment
    cluster: Cluster
    target: Provisioner
    state: StateDirectory

    @property
    def terraform(self) -> Terraform:
        return Terraform(self.state.terraform)


def open_deployment(path: Path) -> Opened:
    """Read it and what it names. Raises where a name is unknown, or this machine can't do it."""
    deployment = read_deployment(path)
    cluster = (
        deployment.cluster
        if isinstance(deployment.cluster, Cluster)
        else read_cluster(deployment.cluster, path.parent)
    )
    target = TARGETS[deployment.target.kind]
    target.check(deployment, cluster)
    return Opened(deployment, cluster, target, StateDirectory(deployment.name))


def plan(opened: Opened) -> DeploymentPlan:
    """Changes nothing, but looks at what is there."""
    usd_per_hour = check_budget(opened)
    changes = Changes()
    if opened.target.module() is not None:
        with opened.state.changing():
            new = opened.state.is_new()
            try:
                _write_module(opened)
                opened.terraform.check_state()
                changes = opened.terraform.plan()
            finally:
                if new:
                    opened.state.remove()
    return DeploymentPlan(
        opened.deployment,
        opened.cluster,
        changes,
        opened.state.hosts() or opened.target.hosts(opened.deployment, {"hosts": ()}),
        usd_per_hour,
        (*opened.target.availability(opened.deployment), *opened.target.notes()),
        _ttl(opened.deployment),
    )


def up(opened: Opened, tell: Tell, sudo_password: str | None = None) -> tuple[Changes, PlayRecap]:
    """Machines, then roles; what is there already stays as it is."""
    deployment = opened.deployment
    check_budget(opened)
    opened.target.check_orders(deployment)
    with opened.state.changing():
        changes, hosts = provision(opened, tell)
        environment = opened.target.environment(deployment)
        lock = read_lock()
        training = (
            {"training_environment": environment}
            if environment
            else package_to_install(opened.state.path)
            | environments(lock, deployment.framework, horovod=deployment.horovod)
        )
        gpu, _ = machine_of(opened.cluster)
        slurm = {"slurm_gpu_type": gpu.id}
        # where the role training is, its environment is the one to train in
        trains = "training" in (*deployment.head, *deployment.workers)
        stack = gpu_variables(lock, () if trains else (deployment.framework,))
        stack["containers_users"] = list(deployment.docker_users)
        variables = {**slurm, **stack, **opened.target.ansible_variables(), **training}
        outcome = apply_roles(
            deployment, hosts, opened.state, variables, tell, sudo_password=sudo_password
        )
    return changes, outcome


def provision(opened: Opened, tell: Tell) -> tuple[Changes, tuple[Host, ...]]:
    """Machines alone. Where not all can be had, what is there is named, for it may cost money."""
    changes, outputs = Changes(), {}
    if opened.target.module() is not None:
        _write_module(opened)
        opened.terraform.check_state()
        opened.target.claim(opened.state)
        _set_end(opened)  # before the first one costs anything
        try:
            changes = opened.terraform.apply(tell)
        except GpuyardError as error:
            raise GpuyardError(f"{error}{_what_stands(opened.target, opened.state)}") from error
        outputs = opened.terraform.outputs()
        _set_end(opened)
    try:
        hosts = opened.target.hosts(opened.deployment, outputs)
    except (ValueError, TypeError, KeyError) as error:
        raise GpuyardError(f"Terraform's outputs name hosts that can't be used: {error}") from None
    opened.state.write_hosts(hosts)
    if rates := opened.target.link_rates(opened.cluster):
        opened.target.set_link(opened.state, rates[-1])  # a bench that was killed has left another
    return changes, hosts


def check_budget(opened: Opened) -> float | None:
    """What it costs an hour, where that is known. Raises where it is more than it may be, or nobody knows."""
    usd = opened.target.usd_per_hour(opened.deployment, opened.cluster)
    most = getattr(opened.deployment.target, "max_usd_per_hour", None)
    if most is not None and usd is None:
        raise GpuyardError(
            f"the hourly price of {opened.deployment.name} is not known, and max_usd_per_hour is {format_usd(most)}; "
            "take it out of the file to go on without a limit"
        )
    if most is not None and usd is not None and usd > most:
        raise GpuyardError(
            f"{opened.deployment.name} would cost {format_usd(usd)} an hour, and max_usd_per_hour is {format_usd(most)}"
        )
    return usd


def down(opened: Opened, tell: Tell) -> list[str]:
    """Remove all that `up` made; what remains, by name."""
    with opened.state.changing():
        if opened.target.module() is None:
            opened.state.remove()
            return [
                f"{host.name} ({host.address})"
                for host in opened.target.hosts(opened.deployment, {})
            ]
        _write_module(opened)
        return remove(opened.target, opened.state, tell)


def remove(target: Provisioner, state: StateDirectory, tell: Tell) -> list[str]:
    """Everything that Terraform knows of and everything that it does not; what remains, by name."""
    terraform = Terraform(state.terraform)
    try:
        terraform.check_state()
        terraform.destroy(tell)
    except GpuyardError as error:
        raise GpuyardError(f"{error}{_what_stands(target, state)}") from error
    left = [*terraform.identities(), *target.sweep(state)]
    if left:
        return left
    others = target.standing(state)
    state.remove()
    return others


def _what_stands(target: Provisioner, state: StateDirectory) -> str:
    """For a sentence about what went wrong."""
    there: list[str] = []
    try:
        there = target.standing(state)
    except GpuyardError:  # then at least what Terraform has written down
        with suppress(GpuyardError):  # which may be what is wrong
            there = Terraform(state.terraform).identities() if target.rented else []
    if not there:
        return ""
    price = " and costs money" if target.rented else ""
    return f". This is there{price} until `gpuyard deploy down`: {', '.join(there)}"


def _ttl(deployment: Deployment) -> float | None:
    return getattr(deployment.target, "ttl", None)


def _set_end(opened: Opened) -> None:
    if opened.target.rented:
        set_end(opened.state, opened.target.kind, _ttl(opened.deployment))


def _write_module(opened: Opened) -> None:
    variables = opened.target.variables(opened.deployment, opened.cluster, opened.state)
    opened.terraform.write(opened.target.module() or "", variables)
