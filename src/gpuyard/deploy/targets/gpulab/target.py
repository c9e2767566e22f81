"""Jobs of imec's GPULab as machines: one with many GPUs, or many with one that find each other."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from gpuyard.deploy.clouds.gpulab import Gpulab, SubmittedJob
from gpuyard.deploy.state import Host, StateDirectory, public_key
from gpuyard.deploy.targets.base import Provisioner, check_most, installed_host, not_ended, spec_of
from gpuyard.deploy.targets.gpulab.definition import definition
from gpuyard.hardware.clusters import machine_of
from gpuyard.specs.cluster import Cluster
from gpuyard.specs.deployment import Deployment
from gpuyard.specs.targets.testbeds import GpulabTarget

_MOST_JOBS = 10  # of one user


class GpulabProvisioner(Provisioner):
    """GPULab knows no job of several machines, so each is a job; their names say which deployment they are of."""

    kind: ClassVar[str] = "gpulab"

    def check(self, deployment: Deployment, cluster: Cluster) -> None:
        del deployment
        check_most(cluster, _MOST_JOBS, f"GPULab runs at most {_MOST_JOBS} jobs of a user")

    def variables(
        self, deployment: Deployment, cluster: Cluster, state: StateDirectory
    ) -> Mapping[str, Any]:
        wanted = spec_of(deployment, GpulabTarget)
        _, machine = machine_of(cluster)
        prefix = f"gpuyard-{state.name}-{state.token()}"
        every = {"nodes": cluster.nodes, "gpus": machine.gpus}
        jobs = [
            definition(wanted, prefix, node=node, public_key=public_key(), **every)
            for node in range(cluster.nodes)
        ]
        return {"project": wanted.project, "definitions": [json.dumps(job) for job in jobs]}

    def hosts(self, deployment: Deployment, outputs: Mapping[str, Any]) -> tuple[Host, ...]:
        del deployment
        return tuple(
            installed_host(host, proxy_command=host["proxy_command"]) for host in outputs["hosts"]
        )

    def check_orders(self, deployment: Deployment) -> None:
        del deployment
        Gpulab.of_user()

    def standing(self, state: StateDirectory) -> list[str]:
        return [str(job) for job in _of_name(state)]

    def sweep(self, state: StateDirectory) -> list[str]:
        """Of a submission whose answer never came."""
        return not_ended(_of_name(state), lambda job: Gpulab.of_user().end(job.id))

    def notes(self) -> Sequence[str]:
        return ("Jobs wait in GPULab's queue until it has room; `up` waits with them.",)


def _of_name(state: StateDirectory) -> list[SubmittedJob]:
    token = state.known_token()
    if token is None:
        return []
    ours = re.compile(rf"gpuyard-{re.escape(state.name)}-{re.escape(token)}-\d+")
    return [job for job in Gpulab.of_user().jobs() if ours.fullmatch(job.name)]
