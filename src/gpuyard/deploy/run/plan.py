"""Plan a run as a value: what is copied where, and the process of each machine."""

import random
import shlex
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gpuyard.deploy.access.place import create_place
from gpuyard.deploy.access.sync import CopyPlan, plan_copy
from gpuyard.deploy.ansible.run import get_roles
from gpuyard.deploy.deployment import LoadedDeployment
from gpuyard.deploy.ports import mlflow_tracking_uri
from gpuyard.deploy.state import Host
from gpuyard.errors import UserMistake
from gpuyard.hardware.clusters import resolve_machine
from gpuyard.interpreter import import_path, module_argv
from gpuyard.jobs.torchrun import complete_torchrun_command, is_torchrun
from gpuyard.run.places.hosts import Hosts
from gpuyard.run.process import Command
from gpuyard.specs.deployment import RoleName

Launcher = Literal["slurm", "ssh"]
_ATTACHED = "gpuyard.run.attached"
_PORTS = (20_000, 30_000)  # the role `firewall` opens these to the cluster


@dataclass(frozen=True)
class RunOptions:
    """The user's choices for a run."""

    nodes: int | None = None
    """Number of machines; None means all."""
    destination_name: str | None = None
    excludes: Sequence[str] = ()
    variables: Mapping[str, str] | None = None
    slurm: bool = True
    """Use Slurm if it is deployed."""


@dataclass(frozen=True)
class RunPlan:
    """A command, the machines that run it, and the folder that they share."""

    loaded: LoadedDeployment
    copy: CopyPlan
    launcher: Launcher
    hosts: tuple[Host, ...]
    gpus_per_node: int
    command: tuple[str, ...]
    variables: Mapping[str, str]
    port: int
    run_id: str

    @property
    def head(self) -> Host:
        return self.hosts[0]

    def node_command(self, node: int) -> tuple[str, ...]:
        """Return the command of one machine; torchrun gets the options that describe the machines."""
        return complete_torchrun_command(
            self.command,
            gpus_per_node=self.gpus_per_node,
            addresses=[host.cluster_address for host in self.hosts],
            node=node,
            port=self.port,
            run_id=self.run_id,
        )

    def node_variables(self, node: int) -> dict[str, str]:
        """Return the variables of one machine's command; torchrun sets those of the rendezvous itself."""
        counts = {
            "GPUYARD_NODES": str(len(self.hosts)),
            "GPUYARD_GPUS": str(len(self.hosts) * self.gpus_per_node),
        }
        if is_torchrun(self.command) or len(self.hosts) == 1:
            return {**counts, **self.variables}
        rendezvous = {
            "MASTER_ADDR": self.head.cluster_address,
            "MASTER_PORT": str(self.port),
            "NNODES": str(len(self.hosts)),
            "NODE_RANK": str(node),
        }
        return {**counts, **rendezvous, **self.variables}

    def submit_words(self) -> tuple[str, ...]:
        """Return the command that submits the run to Slurm on the head."""
        gpus = len(self.hosts) * self.gpus_per_node
        variables = (f"--env={name}={value}" for name, value in self.variables.items())
        return (
            *("gpuyard", "submit", "--engine=slurm", "--json", f"--cwd={self.copy.destination}"),
            *(f"--nodes={len(self.hosts)}", f"--gpus={gpus}", *variables, "--", *self.command),
        )

    def over_ssh(
        self, node: int, argv: Sequence[str], variables: Mapping[str, str] | None = None
    ) -> Command:
        """Return the ssh command that runs `argv` on a machine, in the copied folder, until its stdin closes."""
        place = create_place(self.loaded, self.hosts, Hosts, self.copy.destination)
        attached = (*module_argv(_ATTACHED), self.hosts[node].cluster_address, *argv)
        return place.command(node, attached, {**(variables or {}), **import_path()})

    def describe_commands(self) -> list[tuple[str, str]]:
        """Return the machine and the shell line of each process."""
        if self.launcher == "slurm":
            return [(self.head.name, shlex.join(self.submit_words()))]
        return [
            (host.name, shlex.join(self.node_command(node))) for node, host in enumerate(self.hosts)
        ]


def plan_run(
    loaded: LoadedDeployment,
    hosts: Sequence[Host],
    folder: Path,
    command: Sequence[str],
    options: RunOptions,
) -> RunPlan:
    """Check everything that can be checked before any data moves."""
    if not command:
        raise UserMistake(
            "the command is missing; put it after --, as in: gpuyard deploy run FILE -- torchrun train.py"
        )
    if not 1 <= (options.nodes or 1) <= len(hosts):
        raise UserMistake(
            f"{loaded.deployment.name} has {len(hosts)} machines, so --nodes must be 1 to {len(hosts)}, "
            f"got {options.nodes}"
        )
    chosen = tuple(hosts[: options.nodes or len(hosts)])
    _require_role(loaded, chosen, "training")
    copy = plan_copy(
        loaded,
        chosen[0],
        folder,
        options.destination_name,
        ("__pycache__", *options.excludes),
        delete=False,
    )
    _require_role(loaded, chosen, "shared-storage")
    _, machine = resolve_machine(loaded.cluster)
    has_slurm = all("slurm" in get_roles(loaded.deployment, i) for i in range(len(chosen)))
    return RunPlan(
        loaded,
        copy,
        "slurm" if has_slurm and options.slurm else "ssh",
        chosen,
        machine.gpus,
        tuple(command),
        {**_service_variables(loaded, hosts[0]), **(options.variables or {})},
        random.randrange(*_PORTS),
        uuid.uuid4().hex,
    )


def _service_variables(loaded: LoadedDeployment, head: Host) -> dict[str, str]:
    """Return the variables with which the command finds the services of the head."""
    if "mlflow" not in loaded.deployment.head:
        return {}
    return {"MLFLOW_TRACKING_URI": mlflow_tracking_uri(head)}


def _require_role(loaded: LoadedDeployment, hosts: Sequence[Host], role: RoleName) -> None:
    for index, host in enumerate(hosts):
        if role not in get_roles(loaded.deployment, index):
            raise UserMistake(
                f"{host.name} has no role {role}; add it to 'head' and 'workers', then run `gpuyard deploy up`"
            )
