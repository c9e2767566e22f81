"""Trains a spoken digits model with any number of workers, and goes on with another number where it was stopped.

    torchrun --nproc-per-node 2 elastic_digits.py --checkpoint checkpoints

Every step takes the same global batch, cut into equal parts, so its update does not depend on the number of workers. On
SIGTERM all workers finish their step, rank 0 writes a checkpoint, and they end. A start looks for the checkpoint first.
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
    parser.add_argument("--batch", type=int, default=48, help="of all workers together")
    asked = parser.parse_args()

    told_to_stop = torch.zeros(1)
    signal.signal(signal.SIGTERM, lambda *_: told_to_stop.fill_(1))
    distributed.init_process_group("gloo")
    rank, workers = distributed.get_rank(), distributed.get_world_size()
    if asked.batch % workers:
        sys.exit(f"{asked.batch} samples can't be divided among {workers} workers")

    torch.manual_seed(0)
    model = getattr(spoken_digits, asked.model)().model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    step = load(asked.checkpoint / "last.pt", model, optimizer)
    sounds, digits = (torch.from_numpy(part) for part in digit_clips.load_clips(asked.data))

    while step < asked.steps:
        order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(step))
        mine = order[: asked.batch][rank::workers]
        optimizer.zero_grad()
        # the sum over all workers' parts, divided by the global batch: the mean, however it is cut
        loss = functional.cross_entropy(model(sounds[mine]), digits[mine], reduction="sum")
        loss = loss / asked.batch
        loss.backward()
        for parameter in model.parameters():
            distributed.all_reduce(parameter.grad)
        optimizer.step()
        step += 1
        said = torch.stack([loss.detach(), told_to_stop[0]])
        distributed.all_reduce(said)  # so that all stop after the same step
        if rank == 0:
            sys.stdout.write(f"step {step} loss {said[0]:.6f} workers {workers}\n")
            sys.stdout.flush()
        gpuyard.step(samples=len(mine), number=step, total=asked.steps)
        if said[1] > 0:
            break
    if rank == 0:
        save(asked.checkpoint / "last.pt", model, optimizer, step)
    distributed.barrier()
    distributed.destroy_process_group()


def load(file: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """How many steps are done."""
    if not file.exists():
        return 0
    kept = torch.load(file, weights_only=True)
    model.load_state_dict(kept["model"])
    optimizer.load_state_dict(kept["optimizer"])
    return int(kept["step"])


def save(file: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    torch.save(
        {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, part
    )
    os.replace(part, file)  # noqa: PTH105


if __name__ == "__main__":
    main()
