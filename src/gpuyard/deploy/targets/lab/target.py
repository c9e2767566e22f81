"""Machines on this host, to try a deployment on before it costs anything."""

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from gpuyard import files, units
from gpuyard.deploy.state import Host, StateDirectory, public_key
from gpuyard.deploy.targets.base import Provisioner, check_most, not_ended
from gpuyard.deploy.terraform.run import Terraform
from gpuyard.errors import GpuyardError, MissingRequirement, UserMistake
from gpuyard.hardware.clusters import machine_of, network_rate
from gpuyard.lab import check_can_make_labs
from gpuyard.lab.operation import call
from gpuyard.lab.plan import MOST_NODES
from gpuyard.specs.cluster import Cluster
from gpuyard.specs.deployment import Deployment

_PACKAGE = Path(__file__).parents[4]
# what roles install elsewhere is there already, because no route leads out of a lab
_PACKAGES: dict[str, tuple[str, ...]] = {
    "containers": ("docker.io",),
    "slurm": ("munge", "slurm-wlm", "slurmdbd", "mariadb-server"),
    "monitoring": ("prometheus", "prometheus-node-exporter"),
    "firewall": ("nftables",),
}
# what stands before notebooks of several people, and what debootstrap does not find itself: it provides what another needs
_HUB_PACKAGES = ("node-configurable-http-proxy", "node-fast-safe-stringify")
_DEFAULT_LINK = "1 Gbit/s"


class LabProvisioner(Provisioner):
    """A network namespace and an overlay over one Debian root for each."""

    kind: ClassVar[str] = "lab"

    def check(self, deployment: Deployment, cluster: Cluster) -> None:
        check_can_make_labs()
        if deployment.framework != "pytorch" or deployment.horovod:
            raise UserMistake(
                "machines of a lab use this host's Python environment, for no route leads out of a lab: framework "
                "can only be pytorch there, and horovod is what this host has"
            )
        if "jupyter" in deployment.head and not deployment.environment:
            _check_jupyter(deployment)
        check_most(cluster, MOST_NODES, f"a lab has at most {MOST_NODES} machines")

    def variables(
        self, deployment: Deployment, cluster: Cluster, state: StateDirectory
    ) -> Mapping[str, Any]:
        _, machine = machine_of(cluster)
        roles = {*deployment.head, *deployment.workers}
        packages = {package for role in roles for package in _PACKAGES.get(role, ())}
        if _has_hub(deployment):
            packages.update(_HUB_PACKAGES)
        return {
            "name": deployment.name,
            "nodes": cluster.nodes,
            "link": _link(cluster),
            "disks": str(state.path / "disks"),
            "authorized_key": public_key(),
            "gpus": machine.gpus,
            "packages": sorted(packages),
            "release": getattr(deployment.target, "release", None),
            "mounts": [] if deployment.environment else _own_environment(),
        }

    def hosts(self, deployment: Deployment, outputs: Mapping[str, Any]) -> tuple[Host, ...]:
        del deployment
        return tuple(Host(**host) for host in outputs["hosts"])

    def claim(self, state: StateDirectory) -> None:
        """A lab has no owner's mark, so the deployment notes that it was first; else it would take somebody's own."""
        there = call("find", name=state.name) is not None
        if not _mark(state).exists():
            if there:
                raise GpuyardError(
                    f"there is a lab called {state.name!r} already that is not this deployment's; remove it with "
                    f"`gpuyard lab down --name {state.name}`, or give the deployment another name"
                )
            files.write_text(_mark(state), "", mode=0o600)
        elif there and not Terraform(state.terraform).identities():
            self.sweep(state)

    def standing(self, state: StateDirectory) -> list[str]:
        ours = _mark(state).exists() and call("find", name=state.name) is not None
        return [f"lab {state.name}"] if ours else []

    def sweep(self, state: StateDirectory) -> list[str]:
        """Of a run that was killed before Terraform wrote it down, or whose state is lost."""
        if not _mark(state).exists():
            return []
        disks = sorted((state.path / "disks").glob("node*"))
        return [
            *not_ended(disks, lambda disk: call("remove", name=disk.name, directory=str(disk))),
            *not_ended([state.name], lambda name: call("down", name=name)),
        ]

    def link_rates(self, cluster: Cluster) -> tuple[float, ...]:
        """A lab can set any: the cluster's own, and a tenth of it."""
        own = units.parse_rate(_link(cluster))
        return (own / 10, own)

    def set_link(self, state: StateDirectory, rate_bytes_per_second: float) -> None:
        call("set_rates", name=state.name, rate_bytes_per_second=rate_bytes_per_second)

    def environment(self, deployment: Deployment) -> str:
        """No route leads out of a lab, so its machines see this host's own."""
        return deployment.environment or sys.prefix

    def ansible_variables(self) -> Mapping[str, Any]:
        return {
            "gpuyard_clock_is_kept": True,  # all have this host's
            "containers_start": False,  # they have no cgroups of their own
            "gpuyard_packages_are_there": True,
            "training_python_path": str(_PACKAGE),
            "slurm_isolates": False,  # they share one kernel
        }

    def notes(self) -> Sequence[str]:
        return (
            "Machines of a lab see this host's clock and its Python environment, and have stand-ins for GPUs.",
        )


def _mark(state: StateDirectory) -> Path:
    return state.path / "lab-is-ours"


def _has_hub(deployment: Deployment) -> bool:
    return "jupyter" in deployment.head and len(deployment.users) > 1


def _check_jupyter(deployment: Deployment) -> None:
    """The head's notebooks run in this host's environment."""
    wanted = ["jupyterlab", *(["jupyterhub"] if _has_hub(deployment) else [])]
    missing = [name for name in wanted if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingRequirement(
            f"machines of a lab see this host's Python environment, which has no {missing[0]}: pip install {missing[0]}"
        )


def _link(cluster: Cluster) -> str:
    rate = network_rate(cluster)
    return _DEFAULT_LINK if rate is None else units.format_bit_rate(rate)


def _own_environment() -> list[str]:
    """What this Python is made of, at the paths that it knows, without what lies inside another of them."""
    wanted = sorted({Path(sys.prefix), Path(sys.base_prefix), _PACKAGE} - {Path("/usr")})
    outer = [
        path
        for path in wanted
        if not any(other != path and path.is_relative_to(other) for other in wanted)
    ]
    return [str(path) for path in outer]
