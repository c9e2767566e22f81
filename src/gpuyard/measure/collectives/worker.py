"""The rank process of a bench of collectives: `python -m gpuyard.measure.collectives.worker`."""

from typing import TYPE_CHECKING

from gpuyard.measure.collectives.records import CollectivesJob, Started
from gpuyard.run.rank_process import Emit, serve
from gpuyard.workloads.resolve import require_torch

if TYPE_CHECKING:
    from gpuyard.measure.collectives.exchange import RankGroup


def main() -> None:
    """Run one job and exit."""
    serve(CollectivesJob, _run)


def time_all(job: CollectivesJob, group: "RankGroup", report: Emit) -> None:
    """The links by themselves, then every operation at every size."""
    from gpuyard.measure.collectives.timing import probe_links, time_collective

    report(Started(operation=None, bytes=0))
    report(probe_links(group))
    for operation in job.operations:
        for size in job.sizes:
            report(Started(operation=operation, bytes=size))
            report(time_collective(operation, size, group, job))


def _run(job: CollectivesJob, emit: Emit) -> None:
    require_torch()
    from gpuyard.measure.collectives.group import TorchGroup

    group = TorchGroup(job)
    time_all(job, group, emit if job.rank == 0 else lambda _event: None)
    group.leave()


if __name__ == "__main__":
    main()
