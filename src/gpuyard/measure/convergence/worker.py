"""The rank process of training to an accuracy: `python -m gpuyard.measure.convergence.worker`."""

import os

from gpuyard.measure.convergence.job import FitJob
from gpuyard.run.rank_process import Emit, serve
from gpuyard.workloads.resolve import require_torch


def main() -> None:
    """Run one job and exit."""
    serve(FitJob, _run)


def _run(job: FitJob, emit: Emit) -> None:
    require_torch()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, job.cores)
    import torch

    from gpuyard.measure.convergence.epochs import Fit

    torch.set_num_threads(len(job.cores))
    torch.use_deterministic_algorithms(True)
    device = torch.device("cuda", job.rank) if job.device == "cuda" else torch.device("cpu")
    Fit(job, device).run(emit if job.rank == 0 else lambda _event: None)


if __name__ == "__main__":
    main()
