"""Kinds of Kubernetes objects that a job can be submitted as."""

from gpuyard.jobs.engines.kubernetes.kinds.base import ObjectKind
from gpuyard.jobs.engines.kubernetes.kinds.core import BatchJob, NotebookStatefulSet
from gpuyard.jobs.engines.kubernetes.kinds.kubeflow import PyTorchJob, TrainJob

KINDS: dict[str, ObjectKind] = {
    kind.name: kind for kind in (BatchJob(), TrainJob(), PyTorchJob(), NotebookStatefulSet())
}
"""Kinds by their name in job files and handles."""
