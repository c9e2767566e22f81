"""All checks, one group after the other: a group is a file here and a line in the registry below."""

from typing import TYPE_CHECKING

from gpuyard.deploy.deployment import Opened
from gpuyard.deploy.verify.check import CheckGroup, Deployed, Tell, Verification
from gpuyard.deploy.verify.firewall import shut
from gpuyard.deploy.verify.jupyter import notebooks
from gpuyard.deploy.verify.machines import clocks, ports, reached, synchronisation
from gpuyard.deploy.verify.monitoring import watched
from gpuyard.deploy.verify.slurm import a_job
from gpuyard.deploy.verify.storage import shared_directory
from gpuyard.deploy.verify.training import able_to_train
from gpuyard.errors import GpuyardError

if TYPE_CHECKING:
    from gpuyard.measure.store import ResultsStore

GROUPS: tuple[CheckGroup, ...] = (
    CheckGroup("Comparing clocks", clocks),
    CheckGroup("Asking time services", synchronisation, "base"),
    CheckGroup("Looking for open ports", ports),
    CheckGroup("Reading the shared directory on every machine", shared_directory, "shared-storage"),
    CheckGroup("Running a job on every machine through Slurm", a_job, "slurm"),
    CheckGroup("Opening notebooks", notebooks, "jupyter"),
    CheckGroup("Asking Prometheus what it sees", watched, "monitoring"),
    CheckGroup("Knocking at closed ports", shut, "firewall"),
    CheckGroup("Training on every machine", able_to_train, "training"),
)


def verify(
    opened: Opened, store: "ResultsStore", tell: Tell, sudo_password: str | None = None
) -> Verification:
    """Everything that the roles promise; a machine that can't be reached fails its own checks only."""
    hosts = opened.state.hosts()
    if not hosts:
        raise GpuyardError(
            f"{opened.deployment.name!r} is not up yet; bring it up with: gpuyard deploy up FILE"
        )
    tell("Reaching every machine")
    checks = reached(Deployed(opened, hosts, store))
    answering = (host for host, check in zip(hosts, checks, strict=True) if check.ok)
    there = Deployed(opened, tuple(answering), store, sudo_password)
    for group in GROUPS:
        if group.applies(there):
            tell(group.says)
            checks += group.check(there)
    return Verification(tuple(checks))
