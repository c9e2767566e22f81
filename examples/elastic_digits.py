"""Train a spoken-digits model with any number of workers, and resume it with another number.

    torchrun --nproc-per-node 2 elastic_digits.py --checkpoint checkpoints

Every step divides the same global batch into equal parts, so its update does not depend on the number of workers. On
SIGTERM, all workers finish their step, rank 0 writes a checkpoint, and all exit. The next start resumes from the checkpoint.
"""

import argparse
import os
import signal
import sys
from pathlib import Path

import torch
from torch import distributed
from torch.nn import functional

import gpuyard
from gpuyard.files import dataset_directory
from gpuyard.workloads import digit_clips, spoken_digits


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint", type=Path, default=Path("checkpoints"))
    parser.add_argument("--data", type=Path, default=dataset_directory("spoken-digits"))
    parser.add_argument("--model", choices=("linear", "conv"), default="conv")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch", type=int, default=48, help="global batch size of all workers")
    options = parser.parse_args()

    stop_requested = torch.zeros(1)
    signal.signal(signal.SIGTERM, lambda *_: stop_requested.fill_(1))
    distributed.init_process_group("gloo")
    rank, workers = distributed.get_rank(), distributed.get_world_size()
    if options.batch % workers:
        sys.exit(f"{options.batch} samples cannot be divided equally among {workers} workers")

    torch.manual_seed(0)
    model = getattr(spoken_digits, options.model)().model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    step = load(options.checkpoint / "last.pt", model, optimizer)
    sounds, digits = (torch.from_numpy(part) for part in digit_clips.load_clips(options.data))

    while step < options.steps:
        order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(step))
        mine = order[: options.batch][rank::workers]
        optimizer.zero_grad()
        # the sum over all workers, divided by the global batch, is the mean for any number of workers
        loss = functional.cross_entropy(model(sounds[mine]), digits[mine], reduction="sum")
        loss = loss / options.batch
        loss.backward()
        for parameter in model.parameters():
            distributed.all_reduce(parameter.grad)
        optimizer.step()
        step += 1
        totals = torch.stack([loss.detach(), stop_requested[0]])
        distributed.all_reduce(totals)  # makes all workers stop after the same step
        if rank == 0:
            sys.stdout.write(f"step {step} loss {totals[0]:.6f} workers {workers}\n")
            sys.stdout.flush()
        gpuyard.step(samples=len(mine), number=step, total=options.steps)
        if totals[1] > 0:
            break
    if rank == 0:
        save(options.checkpoint / "last.pt", model, optimizer, step)
    distributed.barrier()
    distributed.destroy_process_group()


def load(file: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load the checkpoint, if there is one, and return the number of finished steps."""
    if not file.exists():
        return 0
    checkpoint = torch.load(file, weights_only=True)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    return int(checkpoint["step"])


def save(file: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Replace the checkpoint atomically."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    torch.save(
        {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, part
    )
    os.replace(part, file)  # noqa: PTH105


if __name__ == "__main__":
    main()
