"""Machines on this host, to try a deployment on before it costs anything."""

import sys
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar

from gpuyard import units
from gpuyard.catalog.hardware import links
from gpuyard.deploy.state import Host, StateDirectory, public_key
from gpuyard.deploy.targets.base import Target
from gpuyard.errors import UserMistake
from gpuyard.hardware.clusters import machine_of
from gpuyard.lab import check_can_make_labs
from gpuyard.lab.plan import MOST_NODES
from gpuyard.specs.cluster import Cluster
from gpuyard.specs.deployment import Deployment

_PACKAGE = Path(__file__).parents[3]
# what roles install elsewhere is there already, because no route leads out of a lab
_PACKAGES: dict[str, tuple[str, ...]] = {"slurm": ("munge", "slurm-wlm")}
_DEFAULT_LINK = "1 Gbit/s"


class LabTarget(Target):
    """A network namespace and an overlay over one Debian root for each."""

    kind: ClassVar[str] = "lab"

    def check(self, deployment: Deployment, cluster: Cluster) -> None:
        del deployment
        check_can_make_labs()
        if cluster.nodes > MOST_NODES:
            raise UserMistake(f"a lab has at most {MOST_NODES} machines, got {cluster.nodes}")

    def module(self) -> str:
        return resources.files(__package__).joinpath("lab/main.tf").read_text(encoding="utf-8")

    def variables(
        self, deployment: Deployment, cluster: Cluster, state: StateDirectory
    ) -> Mapping[str, Any]:
        _, machine = machine_of(cluster)
        roles = {*deployment.head, *deployment.workers}
        return {
            "name": deployment.name,
            "nodes": cluster.nodes,
            "link": _link(cluster),
            "disks": str(state.path / "disks"),
            "authorized_key": public_key(),
            "gpus": machine.gpus,
            "packages": sorted({p for role in roles for p in _PACKAGES.get(role, ())}),
            "mounts": [] if deployment.environment else _own_environment(),
        }

    def hosts(self, deployment: Deployment, outputs: Mapping[str, Any]) -> tuple[Host, ...]:
        del deployment
        return tuple(Host(**host) for host in outputs["hosts"])

    def environment(self, deployment: Deployment) -> str:
        """No route leads out of a lab, so its machines see this host's own."""
        return deployment.environment or sys.prefix

    def ansible_variables(self) -> Mapping[str, Any]:
        return {
            "gpuyard_clock_is_kept": True,  # all have this host's
            "training_python_path": str(_PACKAGE),
            "slurm_isolates": False,  # they share one kernel
        }

    def notes(self) -> Sequence[str]:
        return (
            "Machines of a lab see this host's clock and its Python environment, and have stand-ins for GPUs.",
        )


def _link(cluster: Cluster) -> str:
    network = cluster.network
    if network is None:
        return _DEFAULT_LINK
    if network.rate is not None:
        return units.format_bit_rate(network.rate)
    return units.format_bit_rate(links().get(network.link or "").raw_bytes_per_second)


def _own_environment() -> list[str]:
    """What this Python is made of, at the paths that it knows, without what lies inside another of them."""
    wanted = sorted({Path(sys.prefix), Path(sys.base_prefix), _PACKAGE} - {Path("/usr")})
    outer = [
        path
        for path in wanted
        if not any(other != path and path.is_relative_to(other) for other in wanted)
    ]
    return [str(path) for path in outer]
