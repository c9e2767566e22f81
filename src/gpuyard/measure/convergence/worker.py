"""The rank process of training to an accuracy: `python -m gpuyard.measure.convergence.worker`."""

from gpuyard.interpreter import import_permanently
from gpuyard.measure.convergence.records import ConvergenceJob
from gpuyard.run.rank_process import Emit, serve
from gpuyard.workloads.resolve import require_torch


def main() -> None:
    """Run one job and exit."""
    serve(ConvergenceJob, _run)


def _run(job: ConvergenceJob, emit: Emit) -> None:
    require_torch()
    import_permanently("torch", "torch._dynamo")  # optimizers import it when they are created
    import torch

    from gpuyard.measure.convergence.epochs import EpochTrainer
    from gpuyard.measure.training.trainer import set_precision
    from gpuyard.run.peers import select_device

    set_precision(job.workload.precision)
    torch.use_deterministic_algorithms(True)
    EpochTrainer(job, select_device(job)).run(emit if job.rank == 0 else lambda _event: None)


if __name__ == "__main__":
    main()
