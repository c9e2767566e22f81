"""Instances at Lambda Cloud."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from gpuyard.deploy.clouds.lambda_cloud import Instance, InstanceType, LambdaCloud
from gpuyard.deploy.state import Host, StateDirectory
from gpuyard.deploy.targets.base import Provisioner, get_target_spec, remove_each
from gpuyard.errors import UnknownName, UserMistake
from gpuyard.hardware.clusters import resolve_machine
from gpuyard.specs.cluster import Cluster
from gpuyard.specs.deployment import Deployment
from gpuyard.specs.targets.clouds import LambdaTarget

_GPU_COUNT = re.compile(r"gpu_(\d{1,3})x_")
_USER = "ubuntu"  # in every image that Lambda offers


class LambdaProvisioner(Provisioner):
    """Rents instances whose names identify the deployment, so none is ever paid for unnoticed."""

    kind: ClassVar[str] = "lambda"
    rented: ClassVar[bool] = True

    def check(self, deployment: Deployment, cluster: Cluster) -> None:
        """Check without calling Lambda Cloud, so that machines stay accessible while its API is down."""
        spec = get_target_spec(deployment, LambdaTarget)
        _, machine = resolve_machine(cluster)
        match = _GPU_COUNT.match(spec.instance_type)
        if match is not None and int(match[1]) != machine.gpus:
            raise UserMistake(
                f"the cluster's machines have {machine.gpus} GPUs, and {spec.instance_type} has {match[1]}"
            )

    def variables(
        self, deployment: Deployment, cluster: Cluster, state: StateDirectory
    ) -> Mapping[str, Any]:
        spec = get_target_spec(deployment, LambdaTarget)
        return {
            "prefix": state.ensure_prefix(),
            "nodes": cluster.nodes,
            "instance_type": spec.instance_type,
            "region": spec.region,
            "ssh_key": spec.ssh_key,
        }

    def hosts(self, deployment: Deployment, outputs: Mapping[str, Any]) -> tuple[Host, ...]:
        del deployment
        return tuple(Host(user=_USER, trust_on_first_use=True, **host) for host in outputs["hosts"])

    def usd_per_hour(self, deployment: Deployment, cluster: Cluster) -> float:
        return _find_instance_type(deployment).usd_per_hour * cluster.nodes

    def availability(self, deployment: Deployment) -> Sequence[str]:
        region = get_target_spec(deployment, LambdaTarget).region
        instance_type = _find_instance_type(deployment)
        if region in instance_type.regions:
            return ()
        others = ", ".join(instance_type.regions) or "none"
        return (
            f"Lambda Cloud has no {instance_type.name} in {region} now; regions with capacity: {others}.",
        )

    def check_before_create(self, deployment: Deployment) -> None:
        name = get_target_spec(deployment, LambdaTarget).ssh_key
        names = LambdaCloud.from_environment().ssh_keys()
        if name not in names:
            raise UnknownName("ssh key of the account", name, names)

    def list_existing(self, state: StateDirectory) -> list[str]:
        own_token = state.read_token()
        return [
            f"{instance}{'' if token == own_token else ', of another deployment with this name'}"
            for instance, token in _find_instances(state)
        ]

    def remove_untracked(self, state: StateDirectory) -> list[str]:
        """Terminate instances whose launch was interrupted; those of other deployments with this name stay."""
        own_token = state.read_token()
        instances = [instance for instance, token in _find_instances(state) if token == own_token]
        return remove_each(
            instances, lambda instance: LambdaCloud.from_environment().terminate(instance.id)
        )


def _find_instance_type(deployment: Deployment) -> InstanceType:
    name = get_target_spec(deployment, LambdaTarget).instance_type
    offers = LambdaCloud.from_environment().instance_types()
    if name not in offers:
        raise UnknownName("instance type of Lambda Cloud", name, sorted(offers))
    return offers[name]


def _find_instances(state: StateDirectory) -> list[tuple[Instance, str]]:
    """Return the account's instances with this deployment's name, each with its token."""
    pattern = re.compile(rf"gpuyard-{re.escape(state.name)}-([0-9a-f]{{8}})-\d+")
    instances = []
    for instance in LambdaCloud.from_environment().instances():
        match = pattern.fullmatch(instance.name)
        if match is not None:
            instances.append((instance, match[1]))
    return instances
