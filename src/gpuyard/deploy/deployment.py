"""What is done with a deployment: planned, brought up, and taken down; each can be done again after it was cut off."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpuyard.catalog.specfiles import read_deployment
from gpuyard.deploy.ansible.package import package_to_install
from gpuyard.deploy.ansible.run import Outcome, apply_roles, roles_of
from gpuyard.deploy.state import Host, StateDirectory
from gpuyard.deploy.targets import TARGETS
from gpuyard.deploy.targets.base import Target
from gpuyard.deploy.terraform.run import Changes, Terraform
from gpuyard.hardware.clusters import machine_of, read_cluster
from gpuyard.specs.cluster import Cluster
from gpuyard.specs.deployment import Deployment

Tell = Callable[[str], None]


@dataclass(frozen=True)
class DeploymentPlan:
    """What `up` would do now."""

    deployment: Deployment
    cluster: Cluster
    changes: Changes
    hosts: tuple[Host, ...]
    usd_per_hour: float
    notes: tuple[str, ...]

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
    target: Target
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
    changes = Changes()
    if opened.target.module() is not None:
        known = opened.state.path.exists()
        with opened.state.changing():
            _write_module(opened)
            changes = opened.terraform.plan()
            if not known:
                opened.state.remove()
    return DeploymentPlan(
        opened.deployment,
        opened.cluster,
        changes,
        opened.state.hosts() or opened.target.hosts(opened.deployment, {"hosts": ()}),
        opened.target.usd_per_hour(opened.deployment, opened.cluster),
        tuple(opened.target.notes()),
    )


def up(opened: Opened, tell: Tell) -> tuple[Changes, Outcome]:
    """Machines, then roles; what is there already stays as it is."""
    deployment = opened.deployment
    with opened.state.changing():
        changes, outputs = Changes(), {}
        if opened.target.module() is not None:
            _write_module(opened)
            changes = opened.terraform.apply(tell)
            outputs = opened.terraform.outputs()
        hosts = opened.target.hosts(deployment, outputs)
        opened.state.write_hosts(hosts)
        environment = opened.target.environment(deployment)
        training = (
            {"training_environment": environment}
            if environment
            else package_to_install(opened.state.path)
        )
        gpu, machine = machine_of(opened.cluster)
        slurm = {"slurm_gpus": machine.gpus, "slurm_gpu_type": gpu.id}
        variables = {**slurm, **opened.target.ansible_variables(), **training}
        outcome = apply_roles(deployment, hosts, opened.state, variables, tell)
    return changes, outcome


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
        opened.terraform.destroy(tell)
        left = opened.terraform.resources()
        if not left:
            opened.state.remove()
        return left


def _write_module(opened: Opened) -> None:
    variables = opened.target.variables(opened.deployment, opened.cluster, opened.state)
    opened.terraform.write(opened.target.module() or "", variables)
