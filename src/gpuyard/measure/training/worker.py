"""The rank process of a training sweep: `python -m gpuyard.measure.training.worker`."""

import gc

from gpuyard.interpreter import import_permanently
from gpuyard.measure.training.records import TrainingJob
from gpuyard.run.rank_process import Emit, serve
from gpuyard.workloads.resolve import require_torch


def main() -> None:
    """Run one job and exit."""
    serve(TrainingJob, _run)


def _run(job: TrainingJob, emit: Emit) -> None:
    require_torch()
    import_permanently("torch", "torch._dynamo")  # optimizers import it when they are created
    import torch

    from gpuyard.measure.training.point import load_job_samples, measure_point, profile_custom_model
    from gpuyard.measure.training.trainer import set_precision
    from gpuyard.run.peers import Peers, select_device

    set_precision(job.workload.precision)
    device = select_device(job)
    samples = load_job_samples(job)
    profile = profile_custom_model(job)
    peers = Peers(job)
    report: Emit = emit if job.rank == 0 else lambda _event: None
    for batch in job.batches:
        result = measure_point(
            job, batch, device=device, peers=peers, samples=samples, on_progress=report
        )
        report(result.model_copy(update={"profile": profile}))
        gc.collect()  # frees the last point's graph before the next one is built
        if job.device == "cuda":
            torch.cuda.empty_cache()
    peers.close()


if __name__ == "__main__":
    main()
