"""Instances of Lambda Cloud."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from gpuyard.deploy.clouds.lambda_cloud import Instance, InstanceType, LambdaCloud
from gpuyard.deploy.state import Host, StateDirectory
from gpuyard.deploy.targets.base import Provisioner, not_ended
from gpuyard.errors import UnknownName, UserMistake
from gpuyard.hardware.clusters import machine_of
from gpuyard.specs import deployment as specs
from gpuyard.specs.cluster import Cluster
from gpuyard.specs.targets.clouds import LambdaTarget

_GPUS = re.compile(r"gpu_(\d{1,3})x_")
_USER = "ubuntu"  # of every image that Lambda offers


class LambdaProvisioner(Provisioner):
    """Their names say which deployment they are of, so that none is ever paid for unseen."""

    kind: ClassVar[str] = "lambda"
    rented: ClassVar[bool] = True

    def check(self, deployment: specs.Deployment, cluster: Cluster) -> None:
        """Without asking Lambda Cloud: machines can be logged in to while its interface is away."""
        wanted = _of(deployment)
        _, machine = machine_of(cluster)
        named = _GPUS.match(wanted.instance_type)
        if named is not None and int(named[1]) != machine.gpus:
            raise UserMistake(
                f"the cluster's machines have {machine.gpus} GPUs, and {wanted.instance_type} has {named[1]}"
            )

    def variables(
        self, deployment: specs.Deployment, cluster: Cluster, state: StateDirectory
    ) -> Mapping[str, Any]:
        wanted = _of(deployment)
        return {
            "prefix": f"gpuyard-{state.name}-{state.token()}",
            "nodes": cluster.nodes,
            "instance_type": wanted.instance_type,
            "region": wanted.region,
            "ssh_key": wanted.ssh_key,
        }

    def hosts(self, deployment: specs.Deployment, outputs: Mapping[str, Any]) -> tuple[Host, ...]:
        del deployment
        return tuple(Host(user=_USER, first_contact=True, **host) for host in outputs["hosts"])

    def usd_per_hour(self, deployment: specs.Deployment, cluster: Cluster) -> float:
        return _offer(deployment).usd_per_hour * cluster.nodes

    def availability(self, deployment: specs.Deployment) -> Sequence[str]:
        wanted, offer = _of(deployment), _offer(deployment)
        if wanted.region in offer.regions:
            return ()
        elsewhere = ", ".join(offer.regions) or "none"
        return (
            f"Lambda Cloud has no {offer.name} in {wanted.region} now; regions that have: {elsewhere}.",
        )

    def check_orders(self, deployment: specs.Deployment) -> None:
        wanted = _of(deployment)
        known = LambdaCloud.of_user().ssh_keys()
        if wanted.ssh_key not in known:
            raise UnknownName("ssh key of the account", wanted.ssh_key, known)

    def standing(self, state: StateDirectory) -> list[str]:
        ours = state.known_token()
        return [
            f"{instance}{'' if token == ours else ', of another deployment of this name'}"
            for instance, token in _of_name(state)
        ]

    def sweep(self, state: StateDirectory) -> list[str]:
        """Of a launch whose answer never came; what others have made under this name is theirs."""
        known = state.known_token()
        ours = [instance for instance, token in _of_name(state) if token == known]
        return not_ended(ours, lambda instance: LambdaCloud.of_user().end(instance.id))


def _of(deployment: specs.Deployment) -> LambdaTarget:
    target = deployment.target
    if not isinstance(target, LambdaTarget):
        raise TypeError(f"expected a deployment on Lambda Cloud, got {target.kind}")
    return target


def _offer(deployment: specs.Deployment) -> InstanceType:
    name = _of(deployment).instance_type
    offered = LambdaCloud.of_user().instance_types()
    if name not in offered:
        raise UnknownName("instance type of Lambda Cloud", name, sorted(offered))
    return offered[name]


def _of_name(state: StateDirectory) -> list[tuple[Instance, str]]:
    """What the account has under this deployment's name, with the token of each."""
    ours = re.compile(rf"gpuyard-{re.escape(state.name)}-([0-9a-f]{{8}})-\d+")
    found = []
    for instance in LambdaCloud.of_user().instances():
        match = ours.fullmatch(instance.name)
        if match is not None:
            found.append((instance, match[1]))
    return found
