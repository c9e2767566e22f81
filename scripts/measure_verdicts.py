"""Measure how often `gpuyard watch` names a fault: real DDP trainings over gloo in a lab, each with one fault or none.

    python scripts/measure_verdicts.py --runs 20 --fault none,none-4,slow-rank,one-hog,half-link,slow-input

Rank 1 is the faulty one; `none-4` has the four machines and links of `half-link`, all healthy. If other programs make all
ranks wait for CPUs, a healthy run counts as right if the verdict says that and names no rank, link, or other drift. Prints a line for
each run, and at the end how many were right, by fault.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from gpuyard import lab
from gpuyard.jobs.verdict import Verdict, judge
from gpuyard.reporting.ranks import read_rank_files

RANK = """
import os, sys, time
import torch, torch.distributed as dist
from torch import nn
import gpuyard

seconds, slow_input = float(sys.argv[1]), sys.argv[2] == "slow"
torch.set_num_threads(1)
torch.manual_seed(0)
dist.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Sequential(*[nn.Linear(256, 256) for _ in range(6)]))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)

def load():
    while True:
        if slow_input:
            time.sleep(0.03)
        yield torch.randn(256, 256)

end = time.time() + seconds
for batch in gpuyard.batches(load()):
    model(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    gpuyard.step(samples=256)
    if time.time() > end:
        os._exit(0)
"""
FAULTY = 1
EXPECTED = {
    "none": [],
    "none-4": [],
    "slow-rank": ["other job", "slow rank"],
    "one-hog": ["other job", "slow rank"],
    "half-link": ["slow link"],
    "slow-input": ["input starved"],
}
_HOGS = {"slow-rank": 4, "one-hog": 1}
_LINKS = {"half-link": ("200Mbit", {FAULTY: "100Mbit"}, 4), "none-4": ("200Mbit", None, 4)}
_HEALTHY = ("1Gbit", None, 2)


def run(fault: str, seconds: float) -> Verdict | None:
    """Train in a new lab with this fault, and return the verdict."""
    link, link_of, nodes = _LINKS.get(fault, _HEALTHY)
    with tempfile.TemporaryDirectory() as directory:
        steps = Path(directory) / "steps"
        plan = lab.plan_lab(nodes, link, name="verdicts", link_of=link_of)
        with lab.temporary(plan) as made, contextlib.ExitStack() as stack:
            if fault in _HOGS:
                stack.enter_context(_load_cores(made.nodes[FAULTY].cores, _HOGS[fault]))
            ranks = [
                subprocess.Popen(
                    node.command(
                        [sys.executable, "-c", RANK, str(seconds), _input_of(fault, number)]
                    ),
                    env={
                        **os.environ,
                        "GLOO_SOCKET_IFNAME": node.interface,
                        "GPUYARD_STEPS": str(steps),
                        "MASTER_ADDR": made.nodes[0].address,
                        "MASTER_PORT": "29500",
                        "RANK": str(number),
                        "WORLD_SIZE": str(nodes),
                    },
                    stderr=subprocess.DEVNULL,  # the others lose the rank that ends first
                )
                for number, node in enumerate(made.nodes)
            ]
            for rank in ranks:
                rank.wait()
        return judge(read_rank_files(steps, Path(directory) / "log"))


def _input_of(fault: str, rank: int) -> str:
    return "slow" if fault == "slow-input" and rank == FAULTY else "fast"


@contextlib.contextmanager
def _load_cores(cores: tuple[int, ...], count: int) -> Iterator[None]:
    argv = ["taskset", "-c", ",".join(map(str, cores)), sys.executable, "-c", "while True: pass"]
    hogs = [subprocess.Popen(argv) for _ in range(count)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def is_right(fault: str, verdict: Verdict) -> bool:
    """Return whether the first cause is the fault, with its rank or host, or there is none as there should be."""
    if not EXPECTED[fault]:
        crowded = verdict.drift is None or verdict.drift.part == "CPU wait"
        return crowded and all(c.name == "other job" and c.rank is None for c in verdict.causes)
    if not verdict.causes or verdict.causes[0].name not in EXPECTED[fault]:
        return False
    first = verdict.causes[0]
    if fault == "half-link":
        return len(first.hosts) == 1 and f"(rank {FAULTY})" in first.hosts[0]
    return first.rank == FAULTY


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--fault", default=",".join(EXPECTED))
    arguments = parser.parse_args()
    right: Counter[str] = Counter()
    for number in range(arguments.runs):
        for fault in arguments.fault.split(","):
            verdict = run(fault, arguments.seconds)
            correct = verdict is not None and is_right(fault, verdict)
            right[fault] += correct
            load = f"load {os.getloadavg()[0]:.1f}"
            text = "no verdict" if verdict is None else verdict.sentence
            times = (
                ""
                if verdict is None
                else " ".join(
                    f"{r.compute * 1e3:.0f}/{(r.exchange or 0) * 1e3:.0f}ms@{r.cpu_wait:.2f}"
                    for r in verdict.ranks
                )
            )
            print(number, fault, "right" if correct else "WRONG", load, text, times, flush=True)
    for fault in arguments.fault.split(","):
        print(f"{fault}: {right[fault]} of {arguments.runs}")


if __name__ == "__main__":
    main()
