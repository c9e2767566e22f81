"""Jobs on imec's GPULab as machines: one with many GPUs, or many with one GPU each."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from gpuyard.deploy.clouds.gpulab import Gpulab, SubmittedJob
from gpuyard.deploy.clouds.gpulab_definition import build_definition
from gpuyard.deploy.state import Host, StateDirectory, public_key
from gpuyard.deploy.targets.base import (
    Provisioner,
    check_node_count,
    get_target_spec,
    host_from_output,
    remove_each,
)
from gpuyard.hardware.clusters import resolve_machine
from gpuyard.specs.cluster import Cluster
from gpuyard.specs.deployment import Deployment
from gpuyard.specs.targets.testbeds import GpulabTarget

_MAX_JOBS = 10  # per user


class GpulabProvisioner(Provisioner):
    """Submits one job per machine, because GPULab has no multi-node jobs. Job names identify the deployment."""

    kind: ClassVar[str] = "gpulab"

    def check(self, deployment: Deployment, cluster: Cluster) -> None:
        del deployment
        check_node_count(cluster, _MAX_JOBS, f"GPULab runs at most {_MAX_JOBS} jobs per user")

    def variables(
        self, deployment: Deployment, cluster: Cluster, state: StateDirectory
    ) -> Mapping[str, Any]:
        spec = get_target_spec(deployment, GpulabTarget)
        _, machine = resolve_machine(cluster)
        definitions = [
            build_definition(
                spec,
                state.ensure_prefix(),
                node=node,
                nodes=cluster.nodes,
                gpus=machine.gpus,
                public_key=public_key(),
            )
            for node in range(cluster.nodes)
        ]
        return {
            "project": spec.project,
            "definitions": [json.dumps(definition) for definition in definitions],
        }

    def hosts(self, deployment: Deployment, outputs: Mapping[str, Any]) -> tuple[Host, ...]:
        del deployment
        return tuple(
            host_from_output(host, proxy_command=host["proxy_command"]) for host in outputs["hosts"]
        )

    def ansible_variables(self) -> Mapping[str, Any]:
        return {"gpu_stack_driver": ""}  # jobs are containers, and share their server's driver

    def check_before_create(self, deployment: Deployment) -> None:
        del deployment
        Gpulab.from_environment()

    def list_existing(self, state: StateDirectory) -> list[str]:
        return [str(job) for job in _find_jobs(state)]

    def remove_untracked(self, state: StateDirectory) -> list[str]:
        """Cancel jobs whose submission was interrupted."""
        return remove_each(_find_jobs(state), lambda job: Gpulab.from_environment().cancel(job.id))

    def notes(self, deployment: Deployment) -> Sequence[str]:
        del deployment
        return ("Jobs may wait in GPULab's queue; `up` waits until all of them run.",)


def _find_jobs(state: StateDirectory) -> list[SubmittedJob]:
    token = state.read_token()
    if token is None:
        return []
    pattern = re.compile(rf"gpuyard-{re.escape(state.name)}-{re.escape(token)}-\d+")
    return [job for job in Gpulab.from_environment().jobs() if pattern.fullmatch(job.name)]
