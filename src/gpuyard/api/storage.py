"""Calculate the storage that a workload needs, and compare storage options."""

from pathlib import Path
from typing import TYPE_CHECKING

from gpuyard import units
from gpuyard.api.inputs import read_cluster, read_profiled_workload
from gpuyard.api.result import Result, Row

if TYPE_CHECKING:
    from gpuyard.specs import Cluster, Workload


def storage(
    workload: "str | Path | Workload",
    *,
    on: "str | Path | Cluster",
    batch: int | None = None,
    precision: str | None = None,
    checkpoint_size: str | None = None,
    checkpoint_time: str = "60 s",
    checkpoint_every: str = "30 min",
    checkpoints_kept: int = 3,
) -> Result[Row]:
    """Calculate the bandwidth and capacity that a workload needs on a cluster, and compare storage options."""
    from gpuyard.facilities.storage import size_storage
    from gpuyard.hardware.clusters import resolve_machine
    from gpuyard.planner.storage_need import (
        CheckpointPlan,
        create_storage_request,
        find_published_need,
    )
    from gpuyard.predictor.compute import resolve_precision
    from gpuyard.report.answers.facility.storage_sizing import storage_answer

    spec, profile = read_profiled_workload(workload, precision)
    cluster = read_cluster(on)
    checkpoint = CheckpointPlan(
        size_bytes=units.parse_bytes(checkpoint_size) if checkpoint_size else None,
        seconds=units.parse_seconds(checkpoint_time),
        every_seconds=units.parse_seconds(checkpoint_every),
        kept=checkpoints_kept,
    )
    request = create_storage_request(spec, profile, cluster, checkpoint, batch=batch)
    sizing, published = size_storage(request), find_published_need(spec, cluster)
    used = resolve_precision(resolve_machine(cluster)[0], spec, profile)
    return Result(storage_answer(sizing, spec, cluster, published, used))
