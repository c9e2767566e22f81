"""Plan a deployment, bring it up, and take it down. Each operation can be repeated after it was interrupted."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuyard.catalog.specfiles import read_deployment
from gpuyard.deploy import StatusCallback
from gpuyard.deploy.access.host_keys import HostKey, record_host_keys
from gpuyard.deploy.ansible.run import (
    PlayRecap,
    apply_roles,
    get_roles,
    reject_templates,
    require_ansible,
)
from gpuyard.deploy.expiry import find_poweroff_time, set_expiry
from gpuyard.deploy.reachability import find_unreachable
from gpuyard.deploy.stack.environments import describe_environments, pack_gpuyard
from gpuyard.deploy.stack.install import gpu_variables
from gpuyard.deploy.stack.lock import read_lock
from gpuyard.deploy.state import Host, StateDirectory
from gpuyard.deploy.targets import TARGETS
from gpuyard.deploy.targets.base import Provisioner
from gpuyard.deploy.terraform.run import Changes, Terraform
from gpuyard.errors import GpuyardError, UnknownName, UserMistake
from gpuyard.hardware.clusters import read_cluster, resolve_machine
from gpuyard.specs.cluster import Cluster
from gpuyard.specs.deployment import Deployment
from gpuyard.units import format_usd

_MACHINE_RESOURCE = re.compile(r'resource "(\w*(?:instance|machine|job)\w*)" "node"')
_MACHINE = re.compile(r"(?:instance|machine|job)\w*\.node\[(\d+)\]")


@dataclass(frozen=True)
class DeploymentPlan:
    """The changes that `up` would make now, and what they cost."""

    deployment: Deployment
    cluster: Cluster
    changes: Changes
    hosts: tuple[Host, ...]
    usd_per_hour: float | None
    notes: tuple[str, ...]
    ttl_seconds: float | None = None
    ttl_is_default: bool = False
    """True if the file has no `ttl`: the removal then waits for jobs and copies shared files to this machine first."""
    unreachable: Mapping[str, str] = field(default_factory=dict)
    """Why ssh does not reach a machine that exists, by machine."""

    def changed_machines(self) -> dict[str, list[str]]:
        """Return the names of existing machines that `up` would repair, replace, or remove, and of other such resources."""
        created = find_hosts(self.hosts, self.changes.addresses("create"))
        return {
            "repaired": [host.name for host in created],
            **{
                verb: [_name_resource(self.hosts, a) for a in self.changes.addresses(action)]
                for verb, action in (("replaced", "replace"), ("removed", "delete"))
            },
        }

    def machines(self) -> list[tuple[str, str, str]]:
        """Return the name, address, and roles of each machine; one that does not exist yet has no address."""
        rows = []
        for index in range(self.cluster.nodes):
            host = self.hosts[index] if index < len(self.hosts) else None
            name = host.name if host else f"node{index}"
            address = host.address if host else ""
            rows.append((name, address, ", ".join(get_roles(self.deployment, index))))
        return rows


@dataclass(frozen=True)
class LoadedDeployment:
    """A deployment file together with the cluster, target, and state directory that it names."""

    deployment: Deployment
    cluster: Cluster
    target: Provisioner
    state: StateDirectory

    @property
    def terraform(self) -> Terraform:
        return Terraform(self.state.terraform)


def load_deployment(path: Path) -> LoadedDeployment:
    """Read a deployment file. Raises if a name is unknown, or this machine cannot deploy to the target."""
    deployment = read_deployment(path)
    cluster = (
        deployment.cluster
        if isinstance(deployment.cluster, Cluster)
        else read_cluster(deployment.cluster, path.parent)
    )
    target = TARGETS[deployment.target.kind]
    target.check(deployment, cluster)
    return LoadedDeployment(deployment, cluster, target, StateDirectory(deployment.name))


def plan(loaded: LoadedDeployment, replace: Sequence[str] = ()) -> DeploymentPlan:
    """Compare the deployment with the machines that exist; changes nothing. Raises what `up` would refuse.

    `replace` names machines that `up` would replace although they match.
    """
    usd_per_hour = check_before_up(loaded)
    addresses = _find_resources(loaded, replace)
    changes = Changes()
    if loaded.target.module() is not None:
        with loaded.state.hold():
            new = loaded.state.is_new()
            try:
                _write_module(loaded)
                loaded.terraform.check_state()
                loaded.target.check_unclaimed(loaded.state)
                changes = loaded.terraform.plan(replace=addresses)
            finally:
                if new:
                    loaded.state.remove()
    hosts = loaded.state.hosts() or loaded.target.hosts(loaded.deployment, {"hosts": ()})
    target = loaded.deployment.target
    return DeploymentPlan(
        loaded.deployment,
        loaded.cluster,
        changes,
        hosts,
        usd_per_hour,
        (
            *loaded.target.availability(loaded.deployment),
            *_find_missing_drivers(loaded),
            *loaded.target.notes(loaded.deployment),
        ),
        getattr(target, "ttl", None),
        loaded.target.rented and "ttl" not in target.model_fields_set,
        {} if loaded.target.repairs_ssh else find_unreachable(loaded.state, hosts),
    )


def up(
    loaded: LoadedDeployment,
    report: StatusCallback,
    sudo_password: str | None = None,
    accept_key: Callable[[HostKey], bool] = lambda _key: False,
    *,
    replace: Sequence[str] = (),
    restart: Sequence[str] = (),
    approve: Callable[[tuple[Host, ...]], None] = lambda _: None,
) -> tuple[Changes, PlayRecap]:
    """Create the machines, then apply their roles. Anything that already matches stays unchanged.

    `accept_key` decides about unknown host keys of machines that the user already had. `replace` and `restart` name
    machines to create anew and to restart with their disks. `approve` receives the machines whose disks would be deleted
    before anything changes, and raises if that must not happen.
    """
    check_before_up(loaded)
    addresses = _find_resources(loaded, replace)
    with loaded.state.hold():
        for index in (_find_machine(loaded, name) for name in restart):
            report(f"Restarting {loaded.state.hosts()[index].name}")
            loaded.target.restart(loaded.state, index)
        changes, hosts = provision(loaded, report, replace=addresses, approve=approve)
        report("Checking host keys")
        record_host_keys(loaded.state, hosts, accept_key)
        packed = (
            {} if loaded.target.environment(loaded.deployment) else pack_gpuyard(loaded.state.path)
        )
        poweroff = (
            {"gpuyard_poweroff_time": find_poweroff_time(loaded.state)}
            if loaded.target.power_off_effect
            else {}
        )
        recap = apply_roles(
            loaded.deployment,
            hosts,
            loaded.state,
            {**_role_variables(loaded), **packed, **poweroff},
            report,
            sudo_password=sudo_password,
        )
    return changes, recap


def check_before_up(loaded: LoadedDeployment) -> float | None:
    """Raise whatever `up` would refuse before or after it creates machines, and return the hourly cost."""
    usd_per_hour = check_budget(loaded)
    loaded.target.check_before_create(loaded.deployment)
    require_ansible()
    reject_templates(_role_variables(loaded))
    return usd_per_hour


def _role_variables(loaded: LoadedDeployment) -> dict[str, Any]:
    """Return the variables of the roles, except for gpuyard's own package."""
    deployment, lock = loaded.deployment, read_lock()
    environment = loaded.target.environment(deployment)
    training = (
        {"training_environment": environment}
        if environment
        else describe_environments(lock, deployment.framework, horovod=deployment.horovod)
    )
    gpu, _ = resolve_machine(loaded.cluster)
    # The role `training` installs the environment to train in; without it, gpu-stack does.
    has_training = "training" in (*deployment.head, *deployment.workers)
    return {
        "slurm_gpu_type": gpu.id,
        **gpu_variables(lock, () if has_training else (deployment.framework,)),
        "gpu_stack_may_restart": loaded.target.module() is not None,  # gpuyard created it
        "containers_users": list(deployment.docker_users),
        **loaded.target.ansible_variables(),
        **training,
    }


def provision(
    loaded: LoadedDeployment,
    report: StatusCallback,
    *,
    replace: Sequence[str] = (),
    approve: Callable[[tuple[Host, ...]], None] = lambda _: None,
) -> tuple[Changes, tuple[Host, ...]]:
    """Create the machines only. An error names the machines that already exist, because they may cost money."""
    changes, outputs = Changes(), {}
    if loaded.target.module() is not None:
        _write_module(loaded)
        loaded.terraform.check_state()
        loaded.target.check_unclaimed(loaded.state)
        if existing_hosts := loaded.state.hosts():
            report("Asking Terraform what would change")
            planned = loaded.terraform.plan(replace=replace, save=True)
            lost = find_hosts(existing_hosts, planned.addresses("delete", "replace"))
            if lost:
                approve(lost)
        loaded.target.claim(loaded.state)
        loaded.target.prepare(loaded.deployment, report)
        _set_expiry(loaded)  # before the first machine costs anything
        try:
            changes = loaded.terraform.apply(report)
        except GpuyardError as error:
            existing = _describe_existing(loaded.target, loaded.state)
            raise GpuyardError(f"{error}{existing}") from error
        outputs = loaded.terraform.outputs()
        _set_expiry(loaded)
    try:
        hosts = loaded.target.hosts(loaded.deployment, outputs)
    except (ValueError, TypeError, KeyError) as error:
        raise GpuyardError(f"Terraform's output `hosts` is not usable: {error}") from None
    loaded.state.write_hosts(hosts)
    if rates := loaded.target.link_rates(loaded.cluster):
        # A bench that was killed may have left another rate.
        loaded.target.set_link_rate(loaded.state, rates[-1])
    return changes, hosts


def find_hosts(hosts: tuple[Host, ...], addresses: Sequence[str]) -> tuple[Host, ...]:
    """Return the machines that these Terraform resources stand for; others, like networks, are left out."""
    indexes = [int(match[1]) for address in addresses if (match := _MACHINE.search(address))]
    return tuple(hosts[index] for index in sorted(set(indexes)) if index < len(hosts))


def _name_resource(hosts: tuple[Host, ...], address: str) -> str:
    machines = find_hosts(hosts, (address,))
    return machines[0].name if machines else address


def _find_machine(loaded: LoadedDeployment, name: str) -> int:
    """Return the number of a machine that exists."""
    names = [host.name for host in loaded.state.hosts()]
    if name not in names:
        raise UnknownName("machine", name, names)
    return names.index(name)


def _find_resources(loaded: LoadedDeployment, names: Sequence[str]) -> list[str]:
    """Return the Terraform addresses of these machines."""
    resource = _MACHINE_RESOURCE.search(loaded.target.module() or "")
    if names and resource is None:
        raise UserMistake(
            f"machines of the target {loaded.target.kind!r} cannot be replaced one by one"
        )
    return [f"{resource[1]}.node[{_find_machine(loaded, name)}]" for name in names if resource]


def check_budget(loaded: LoadedDeployment) -> float | None:
    """Return the hourly cost, or None if it is unknown. Raises if it exceeds the limit, or a limit cannot be checked."""
    usd = loaded.target.usd_per_hour(loaded.deployment, loaded.cluster)
    limit = getattr(loaded.deployment.target, "max_usd_per_hour", None)
    if limit is not None and usd is None:
        raise GpuyardError(
            f"the hourly price of {loaded.deployment.name} is unknown, and max_usd_per_hour is {format_usd(limit)}; "
            "remove max_usd_per_hour from the file to continue without a limit"
        )
    if limit is not None and usd is not None and usd > limit:
        raise GpuyardError(
            f"{loaded.deployment.name} would cost {format_usd(usd)} per hour, and max_usd_per_hour is {format_usd(limit)}"
        )
    return usd


def down(loaded: LoadedDeployment, report: StatusCallback) -> list[str]:
    """Remove everything that `up` created; return the names of what remains."""
    with loaded.state.hold():
        if loaded.target.module() is None:
            loaded.state.remove()
            return [
                f"{host.name} ({host.address})"
                for host in loaded.target.hosts(loaded.deployment, {})
            ]
        _write_module(loaded)
        return remove(loaded.target, loaded.state, report)


def remove(target: Provisioner, state: StateDirectory, report: StatusCallback) -> list[str]:
    """Remove everything that exists, whether or not Terraform tracks it; return the names of what remains."""
    terraform = Terraform(state.terraform)
    try:
        terraform.check_state()
        terraform.destroy(report)
    except GpuyardError as error:
        raise GpuyardError(f"{error}{_describe_existing(target, state)}") from error
    remaining = [*terraform.list_resources(), *target.remove_untracked(state)]
    if remaining:
        return remaining
    others = target.list_existing(state)
    state.remove()
    return others


def _describe_existing(target: Provisioner, state: StateDirectory) -> str:
    """Return a sentence to append to an error message, or an empty string if nothing exists."""
    existing: list[str] = []
    try:
        existing = target.list_existing(state)
    except GpuyardError:  # fall back on Terraform's state
        with suppress(GpuyardError):  # which may itself be damaged
            existing = Terraform(state.terraform).list_resources() if target.rented else []
    if not existing:
        return ""
    cost = " and cost money" if target.rented else ""
    return f". These exist{cost} until `gpuyard deploy down`: {', '.join(existing)}"


def _find_missing_drivers(loaded: LoadedDeployment) -> Iterator[str]:
    """Yield a sentence if machines with GPUs get no driver, so that their image must have one."""
    gpu, _ = resolve_machine(loaded.cluster)
    deployment, shared = loaded.deployment, loaded.target.ansible_variables()
    if gpu.vendor != "NVIDIA" or shared.get("gpu_stack_driver") == "":
        return
    lists = {"head": deployment.head}
    if loaded.cluster.nodes > 1:
        lists["workers"] = deployment.workers
    if missing := [name for name, roles in lists.items() if "gpu-stack" not in roles]:
        yield (
            f"The roles of {' and '.join(missing)} do not include gpu-stack: the machines must already have NVIDIA's "
            "driver. `verify` checks it."
        )


def _set_expiry(loaded: LoadedDeployment) -> None:
    if loaded.target.rented:
        set_expiry(loaded.state, loaded.deployment)


def _write_module(loaded: LoadedDeployment) -> None:
    variables = loaded.target.variables(loaded.deployment, loaded.cluster, loaded.state)
    loaded.terraform.write(loaded.target.module() or "", variables)
