"""What a workload at full speed asks of storage, from its prediction on a cluster."""

from dataclasses import dataclass

from gpuyard.catalog import ModelProfile
from gpuyard.catalog.fabric import StorageNeed, storage_needs
from gpuyard.facility.storage import CHECKPOINT_BYTES_PER_PARAMETER, StorageRequest
from gpuyard.hardware.clusters import machine_of
from gpuyard.predict import predict_cluster
from gpuyard.specs import Cluster, Workload


@dataclass(frozen=True)
class CheckpointPlan:
    """How often the state is saved and how long that may take; None: sized by the model."""

    size_bytes: float | None = None
    seconds: float = 60.0
    every_seconds: float = 1800.0
    kept: int = 3


def storage_request(
    workload: Workload,
    profile: ModelProfile,
    cluster: Cluster,
    checkpoint: CheckpointPlan,
    *,
    batch: int | None = None,
) -> StorageRequest:
    """All GPUs of the cluster, as fast as they are where storage is no limit."""
    _, machine = machine_of(cluster)
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


def published_need(workload: Workload, cluster: Cluster) -> StorageNeed | None:
    """What MLPerf Storage has one GPU of this kind read with this model."""
    gpu, _ = machine_of(cluster)
    return next(
        (need for need in storage_needs() if (need.model, need.gpu) == (workload.model, gpu.id)),
        None,
    )
