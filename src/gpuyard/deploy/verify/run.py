"""Run all checks, one group after another. Each group has a module here and an entry in `GROUPS`."""

from typing import TYPE_CHECKING

from gpuyard.deploy import StatusCallback
from gpuyard.deploy.deployment import LoadedDeployment
from gpuyard.deploy.verify.check import CheckGroup, Verification, VerificationContext
from gpuyard.deploy.verify.firewall import check_firewall
from gpuyard.deploy.verify.gpus import check_gpus
from gpuyard.deploy.verify.jupyter import check_notebooks
from gpuyard.deploy.verify.machines import (
    check_clocks,
    check_ports,
    check_reachable,
    check_time_services,
)
from gpuyard.deploy.verify.mlflow import check_mlflow
from gpuyard.deploy.verify.monitoring import check_monitoring
from gpuyard.deploy.verify.slurm import check_slurm
from gpuyard.deploy.verify.storage import check_shared_directory
from gpuyard.deploy.verify.training import check_training
from gpuyard.errors import GpuyardError

if TYPE_CHECKING:
    from gpuyard.measure.store import ResultsStore

GROUPS: tuple[CheckGroup, ...] = (
    CheckGroup("Comparing clocks", check_clocks),
    CheckGroup("Looking at the GPUs", check_gpus),
    CheckGroup("Checking time services", check_time_services, "base"),
    CheckGroup("Looking for open ports", check_ports),
    CheckGroup(
        "Reading the shared directory on every machine", check_shared_directory, "shared-storage"
    ),
    CheckGroup("Running a job on every machine through Slurm", check_slurm, "slurm"),
    CheckGroup("Opening notebooks", check_notebooks, "jupyter"),
    CheckGroup("Logging to MLflow", check_mlflow, "mlflow"),
    CheckGroup("Querying Prometheus", check_monitoring, "monitoring"),
    CheckGroup("Trying closed ports", check_firewall, "firewall"),
    CheckGroup("Training on every machine", check_training, "training"),
)


def verify(
    loaded: LoadedDeployment,
    store: "ResultsStore",
    report: StatusCallback,
    sudo_password: str | None = None,
) -> Verification:
    """Check everything that the roles promise; an unreachable machine fails only its own checks.

    Raises if another process changes the deployment meanwhile, because then a failed check means nothing.
    """
    loaded.state.check_unchanging()
    hosts = loaded.state.hosts()
    if not hosts:
        raise GpuyardError(
            f"{loaded.deployment.name!r} is not up; bring it up with: gpuyard deploy up FILE"
        )
    report("Connecting to every machine")
    checks = check_reachable(VerificationContext(loaded, hosts, store))
    reachable = tuple(host for host, check in zip(hosts, checks, strict=True) if check.ok)
    context = VerificationContext(loaded, reachable, store, sudo_password)
    for group in GROUPS:
        if group.applies(context):
            report(group.description)
            checks += group.check(context)
    verification = Verification(tuple(checks))
    if not verification.ok:
        loaded.state.check_unchanging()
    return verification
