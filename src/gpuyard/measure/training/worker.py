"""The rank process of training: `python -m gpuyard.measure.training.worker`."""

import gc

from gpuyard.interpreter import import_to_stay
from gpuyard.measure.training.records import TrainingJob
from gpuyard.run.rank_process import Emit, serve
from gpuyard.workloads.resolve import require_torch


def main() -> None:
    """Run one job and exit."""
    serve(TrainingJob, _run)


def _run(job: TrainingJob, emit: Emit) -> None:
    require_torch()
    import_to_stay("torch", "torch._dynamo")  # which optimizers import when they are made
    import torch

    from gpuyard.measure.training.point import measure_point, own_profile, read_samples
    from gpuyard.measure.training.trainer import set_precision
    from gpuyard.run.peers import Peers, own_device

    set_precision(job.workload.precision)
    device = own_device(job)
    samples = read_samples(job)
    profile = own_profile(job)
    peers = Peers(job)
    report: Emit = emit if job.rank == 0 else lambda _event: None
    for batch in job.batches:
        result = measure_point(
            job, batch, device=device, peers=peers, samples=samples, on_progress=report
        )
        report(result.model_copy(update={"profile": profile}))
        gc.collect()  # the last point's graph, before the next one is built
        if job.device == "cuda":
            torch.cuda.empty_cache()
    peers.leave()


if __name__ == "__main__":
    main()
