"""Machines that you have."""

import shutil
from collections.abc import Mapping
from typing import Any, ClassVar

from gpuyard.deploy.state import Host
from gpuyard.deploy.targets.base import Provisioner
from gpuyard.errors import MissingRequirement
from gpuyard.specs import deployment as specs
from gpuyard.specs.cluster import Cluster


class SshProvisioner(Provisioner):
    """Reached with the user's own ssh: its keys, its agent and its known hosts."""

    kind: ClassVar[str] = "ssh"

    def check(self, deployment: specs.Deployment, cluster: Cluster) -> None:
        del deployment, cluster
        if shutil.which("ssh") is None:
            raise MissingRequirement("machines are reached over ssh, which is not installed here")

    def hosts(self, deployment: specs.Deployment, outputs: Mapping[str, Any]) -> tuple[Host, ...]:
        del outputs
        machines = getattr(deployment.target, "machines", ())
        return tuple(
            Host(one.name, one.address, one.user, one.port, through_head=one.through_head)
            for one in machines
        )
