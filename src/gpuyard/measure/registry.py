"""All kinds of results by name. To add a bench, add its kind here."""

from typing import Any

from gpuyard.errors import UnknownName
from gpuyard.measure.acceptance.tables import ACCEPTANCE
from gpuyard.measure.collectives.tables import COLLECTIVES
from gpuyard.measure.convergence.tables import CONVERGENCE
from gpuyard.measure.job_runs.tables import JOB_RUNS
from gpuyard.measure.kind import ResultKind
from gpuyard.measure.links.tables import LINKS
from gpuyard.measure.relief.tables import RELIEF
from gpuyard.measure.storage.tables import STORAGE
from gpuyard.measure.training.tables import REJECTED, TRAIN

RESULT_KINDS: dict[str, ResultKind[Any]] = {
    kind.name: kind
    for kind in (
        TRAIN,
        JOB_RUNS,
        LINKS,
        COLLECTIVES,
        RELIEF,
        STORAGE,
        CONVERGENCE,
        ACCEPTANCE,
        REJECTED,
    )
}


def get_result_kind(name: str) -> ResultKind[Any]:
    """Return the kind of this name; raise UnknownName if there is none."""
    if name not in RESULT_KINDS:
        raise UnknownName("kind of results", name, RESULT_KINDS)
    return RESULT_KINDS[name]
