"""One rank of bench_overhead: it alternates gpuyard's measurement and the bare loop in one process group.

Usage: overhead_rank.py RANK WORLD BATCH DIRECTORY SECONDS. Rank 0 prints one line per round: the median
step seconds of gpuyard and of the bare loop.
"""

import gc
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

from bare_ddp import BareLoop
from gpuyard.measure.training.point import load_job_samples, measure_point
from gpuyard.measure.training.records import TrainingJob
from gpuyard.run.peers import Peers
from gpuyard.specs import Dataset, Workload

rank, world, batch = map(int, sys.argv[1:4])
directory, budget_seconds = sys.argv[4], float(sys.argv[5])
core = sorted(os.sched_getaffinity(0))[rank]
os.sched_setaffinity(0, {core})
torch.set_num_threads(1)
job = TrainingJob(
    workload=Workload(
        name="spoken-digits-linear",
        model="gpuyard.workloads.spoken_digits:linear",
        dataset=Dataset(samples=2000),
    ),
    strategy="ddp",
    device="cpu",
    rank=rank,
    processes=world,
    workers=world,
    directory=directory,
    batches=(batch,),
    seconds_per_point=1.2,
    cores=(core,),
    seed=0,
    silence_seconds=120,
)


def measure_gpuyard() -> tuple[float, int, int]:
    """Return the median step seconds that `gpuyard bench train` would report, the windows, and the steps per window."""
    result = measure_point(
        job,
        batch,
        device=torch.device("cpu"),
        peers=peers,
        samples=samples,
        on_progress=lambda _: None,
    )
    steps = result.windows[0].steps
    return statistics.median(w.seconds / steps for w in result.windows), len(result.windows), steps


def measure_bare_loop(windows: int, steps: int) -> float:
    loop = BareLoop(batch)
    loop.train(3)
    return statistics.median(loop.window_seconds(steps) / steps for _ in range(windows))


start = time.monotonic()
samples = load_job_samples(job)
peers = Peers(job)
windows, steps = 5, 2
rounds = 0
while True:
    if rounds % 2:
        bare = measure_bare_loop(windows, steps)
        ours, windows, steps = measure_gpuyard()
    else:
        ours, windows, steps = measure_gpuyard()
        bare = measure_bare_loop(windows, steps)
    gc.collect()
    rounds += 1
    if rank == 0:
        print(ours, bare, flush=True)
    # rank 0 decides, so that no rank waits for one that has stopped
    (more,) = peers.broadcast([time.monotonic() - start < budget_seconds])
    if not more:
        break
dist.destroy_process_group()
