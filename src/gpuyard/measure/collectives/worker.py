"""The rank process of a collectives bench: `python -m gpuyard.measure.collectives.worker`."""

from gpuyard.interpreter import import_permanently
from gpuyard.measure.collectives.records import CollectivesJob
from gpuyard.run.rank_process import Emit, serve
from gpuyard.workloads.resolve import require_torch


def main() -> None:
    """Run one job and exit."""
    serve(CollectivesJob, _run)


def _run(job: CollectivesJob, emit: Emit) -> None:
    require_torch()
    import_permanently("torch")
    from gpuyard.measure.collectives.exchange import time_collectives
    from gpuyard.measure.collectives.group import TorchGroup

    group = TorchGroup(job)
    time_collectives(job, group, emit if job.rank == 0 else lambda _event: None)
    group.leave()


if __name__ == "__main__":
    main()
