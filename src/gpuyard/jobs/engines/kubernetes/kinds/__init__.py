"""As what a job is submitted: one file a kind of object, all with the interface of `base`."""

from gpuyard.jobs.engines.kubernetes.kinds.base import ObjectKind
from gpuyard.jobs.engines.kubernetes.kinds.batch_job import BatchJob
from gpuyard.jobs.engines.kubernetes.kinds.notebook import NotebookStatefulSet
from gpuyard.jobs.engines.kubernetes.kinds.pytorch_job import PyTorchJob
from gpuyard.jobs.engines.kubernetes.kinds.train_job import TrainJob

KINDS: dict[str, ObjectKind] = {
    kind.name: kind for kind in (BatchJob(), TrainJob(), PyTorchJob(), NotebookStatefulSet())
}
"""By the name that job files and handles have."""
