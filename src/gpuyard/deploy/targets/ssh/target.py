"""Machines that you already have."""

import shutil
from collections.abc import Mapping
from typing import Any, ClassVar

from gpuyard.deploy.state import Host
from gpuyard.deploy.targets.base import Provisioner
from gpuyard.errors import MissingRequirement
from gpuyard.specs.cluster import Cluster
from gpuyard.specs.deployment import Deployment


class SshProvisioner(Provisioner):
    """Reaches machines with the user's own ssh keys, agent, and known hosts."""

    kind: ClassVar[str] = "ssh"

    def check(self, deployment: Deployment, cluster: Cluster) -> None:
        del deployment, cluster
        if shutil.which("ssh") is None:
            raise MissingRequirement("ssh not found; install OpenSSH to reach the machines")

    def hosts(self, deployment: Deployment, outputs: Mapping[str, Any]) -> tuple[Host, ...]:
        del outputs
        return tuple(
            Host(
                machine.name,
                machine.address,
                machine.user,
                machine.port,
                through_head=machine.through_head,
            )
            for machine in getattr(deployment.target, "machines", ())
        )
