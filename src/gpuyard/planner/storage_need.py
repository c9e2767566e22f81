"""The storage that a workload needs to run at full speed, from its prediction on a cluster."""

from dataclasses import dataclass

from gpuyard.catalog import ModelProfile
from gpuyard.catalog.fabric import StorageNeed, storage_needs
from gpuyard.facilities.storage import CHECKPOINT_BYTES_PER_PARAMETER, StorageRequest
from gpuyard.hardware.clusters import resolve_machine
from gpuyard.predictor import predict_cluster
from gpuyard.specs import Cluster, Workload


@dataclass(frozen=True)
class CheckpointPlan:
    """The interval, duration, and size of checkpoints; without a size, it follows from the model."""

    size_bytes: float | None = None
    seconds: float = 60.0
    every_seconds: float = 1800.0
    kept: int = 3


def create_storage_request(
    workload: Workload,
    profile: ModelProfile,
    cluster: Cluster,
    checkpoint: CheckpointPlan,
    *,
    batch: int | None = None,
) -> StorageRequest:
    """Return the storage load of all GPUs in the cluster at the speed they reach without a storage limit."""
    _, machine = resolve_machine(cluster)
    gpus = cluster.nodes * machine.gpus
    unlimited = cluster.model_copy(update={"storage": None})
    result = predict_cluster(workload, profile, unlimited, [gpus], batches=[batch] if batch else ())
    dataset = workload.dataset
    stored = dataset.bytes_per_sample if dataset else None
    per_sample = profile.input_bytes if stored is None else stored
    size = checkpoint.size_bytes
    return StorageRequest(
        samples_per_second=result.predictions[0].samples_per_second,
        bytes_per_sample=per_sample,
        gpus=gpus,
        gpus_per_node=machine.gpus,
        dataset_bytes=dataset.samples * per_sample if dataset else None,
        checkpoint_bytes=(
            CHECKPOINT_BYTES_PER_PARAMETER * profile.parameters if size is None else size
        ),
        checkpoint_seconds=checkpoint.seconds,
        checkpoint_every_seconds=checkpoint.every_seconds,
        checkpoints_kept=checkpoint.kept,
    )


def find_published_need(workload: Workload, cluster: Cluster) -> StorageNeed | None:
    """Return the read rate that MLPerf Storage publishes for this GPU and model, if any."""
    gpu, _ = resolve_machine(cluster)
    return next(
        (
            need
            for need in storage_needs()
            if (need.model, need.gpu) == (workload.model_name, gpu.id)
        ),
        None,
    )
