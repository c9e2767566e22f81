"""Emulated machines on this host, to try a deployment before it costs anything."""

import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar

from gpuyard import files
from gpuyard.deploy import StatusCallback
from gpuyard.deploy.state import Host, StateDirectory, public_key
from gpuyard.deploy.targets.base import Provisioner, check_node_count, remove_each
from gpuyard.deploy.terraform.run import Terraform
from gpuyard.errors import GpuyardError, MissingRequirement, UserMistake
from gpuyard.hardware.clusters import find_network_rate, resolve_machine
from gpuyard.lab import check_can_make_labs
from gpuyard.lab.machine_root import make_root
from gpuyard.lab.operation import call
from gpuyard.lab.plan import MAX_NODES
from gpuyard.specs.cluster import Cluster
from gpuyard.specs.deployment import Deployment

_PACKAGE = Path(__file__).parents[4]
# Machines are created with the packages that roles install elsewhere, because a lab has no route to the internet.
_PACKAGES: dict[str, tuple[str, ...]] = {
    "containers": ("docker.io",),
    "slurm": ("munge", "slurm-wlm", "slurmdbd", "mariadb-server"),
    "monitoring": ("prometheus", "prometheus-node-exporter"),
    "firewall": ("nftables",),
}
# JupyterHub's proxy, and a dependency that debootstrap misses because another package only "provides" it.
_HUB_PACKAGES = ("node-configurable-http-proxy", "node-fast-safe-stringify")
_DEFAULT_RATE_BYTES_PER_SECOND = 125_000_000  # 1 Gbit/s


class LabProvisioner(Provisioner):
    """Creates each machine as a network namespace and an overlay over a shared Debian root."""

    kind: ClassVar[str] = "lab"
    repairs_ssh: ClassVar[bool] = True
    shared_is_on_head: ClassVar[bool] = False

    def check(self, deployment: Deployment, cluster: Cluster) -> None:
        check_can_make_labs()
        if deployment.framework != "pytorch" or deployment.horovod:
            raise UserMistake(
                "lab machines cannot download packages, so they use this host's Python environment: framework must be "
                "pytorch, and horovod must not be set"
            )
        if not deployment.environment:
            _check_packages(deployment)
        check_node_count(cluster, MAX_NODES, f"a lab has at most {MAX_NODES} machines")

    def variables(
        self, deployment: Deployment, cluster: Cluster, state: StateDirectory
    ) -> Mapping[str, Any]:
        _, machine = resolve_machine(cluster)
        return {
            "name": deployment.name,
            "nodes": cluster.nodes,
            "rate_bytes_per_second": _get_rate(cluster),
            "disks": str(state.path / "disks"),
            "authorized_key": public_key(),
            "gpus": machine.gpus,
            "packages": _list_packages(deployment),
            "release": getattr(deployment.target, "release", None),
            "mounts": [] if deployment.environment else _find_python_paths(),
            "shared": str(state.path / "shared"),
        }

    def hosts(self, deployment: Deployment, outputs: Mapping[str, Any]) -> tuple[Host, ...]:
        del deployment
        return tuple(Host(**host) for host in outputs["hosts"])

    def check_unclaimed(self, state: StateDirectory) -> None:
        if not _marker(state).exists() and call("find", name=state.name) is not None:
            raise GpuyardError(
                f"a lab named {state.name!r} already exists and does not belong to this deployment; remove it with "
                f"`gpuyard lab down --name {state.name}`, or give the deployment another name"
            )

    def claim(self, state: StateDirectory) -> None:
        """Record in a marker file that the lab belongs to this deployment, because labs themselves have no owner."""
        if not _marker(state).exists():
            files.write_text(_marker(state), "", mode=0o600)
        elif self.list_existing(state) and not Terraform(state.terraform).list_resources():
            self.remove_untracked(state)

    def prepare(self, deployment: Deployment, report: StatusCallback) -> None:
        make_root(_list_packages(deployment), getattr(deployment.target, "release", None), report)

    def list_existing(self, state: StateDirectory) -> list[str]:
        owned = _marker(state).exists() and call("find", name=state.name) is not None
        return [f"lab {state.name}"] if owned else []

    def remove_untracked(self, state: StateDirectory) -> list[str]:
        """Remove what a run created that was killed before Terraform saved its state, or whose state is lost."""
        if not _marker(state).exists():
            return []
        disks = sorted((state.path / "disks").glob("node*"))
        return [
            *remove_each(disks, lambda disk: call("remove", name=disk.name, directory=str(disk))),
            *remove_each([state.name], lambda name: call("down", name=name)),
        ]

    def restart(self, state: StateDirectory, index: int) -> None:
        directory = state.path / "disks" / f"node{index}"
        call("stop", name=state.hosts()[index].name, directory=str(directory))

    def link_rates(self, cluster: Cluster) -> tuple[float, ...]:
        """Return the cluster's rate and a tenth of it, although a lab can set any rate."""
        rate = _get_rate(cluster)
        return (rate / 10, float(rate))

    def set_link_rate(self, state: StateDirectory, rate_bytes_per_second: float) -> None:
        call("set_rates", name=state.name, rate_bytes_per_second=rate_bytes_per_second)

    def environment(self, deployment: Deployment) -> str:
        """Return this host's environment, which lab machines see because they cannot download packages."""
        return deployment.environment or sys.prefix

    def ansible_variables(self) -> Mapping[str, Any]:
        return {
            "gpuyard_clock_is_kept": True,  # all share this host's clock
            "containers_start": False,  # all share this host's cgroups
            "gpuyard_packages_are_there": True,
            "training_python_path": str(_PACKAGE),
            "gpu_stack_driver": "",  # all share this host's driver
            "gpu_stack_frameworks": [],
            "shared_storage_kind": "attached",  # all have a directory of this host
            "slurm_isolates": False,  # all share one kernel
        }

    def notes(self, deployment: Deployment) -> Sequence[str]:
        del deployment
        return (
            "Lab machines share this host's clock, Python environment, and a directory for shared storage, which "
            "does not use the emulated links. Their GPUs are stand-ins.",
        )


def _marker(state: StateDirectory) -> Path:
    return state.path / "lab-is-ours"


def _list_packages(deployment: Deployment) -> list[str]:
    roles = {*deployment.head, *deployment.workers}
    packages = {package for role in roles for package in _PACKAGES.get(role, ())}
    return sorted({*packages, *(_HUB_PACKAGES if _has_hub(deployment) else ())})


def _has_hub(deployment: Deployment) -> bool:
    return "jupyter" in deployment.head and len(deployment.users) > 1


def _check_packages(deployment: Deployment) -> None:
    """Check that this host's environment, in which the head's notebooks and MLflow run, has their packages."""
    packages = ["jupyterlab"] if "jupyter" in deployment.head else []
    packages += ["jupyterhub"] if _has_hub(deployment) else []
    packages += ["mlflow"] if "mlflow" in deployment.head else []
    # the package mlflow-skinny has the same module, but no server
    missing = [name for name in packages if not any(metadata.distributions(name=name))]
    if missing:
        raise MissingRequirement(
            f"lab machines use this host's Python environment, which has no {missing[0]}: pip install {missing[0]}"
        )


def _get_rate(cluster: Cluster) -> int:
    """Return the link rate in whole bytes per second, which Terraform passes on exactly."""
    rate = find_network_rate(cluster)
    return _DEFAULT_RATE_BYTES_PER_SECOND if rate is None else round(rate)


def _find_python_paths() -> list[str]:
    """Return the directories that this Python consists of, without those inside another of them."""
    paths = sorted({Path(sys.prefix), Path(sys.base_prefix), _PACKAGE} - {Path("/usr")})
    outer = [
        path
        for path in paths
        if not any(other != path and path.is_relative_to(other) for other in paths)
    ]
    return [str(path) for path in outer]
