"""Measure the accuracy of a lab: measured over theoretical all-reduce speed for 2, 4, and 8 nodes.

The theoretical time is that of a ring, 2·(k−1)/k·N/B, where B is the payload rate with frames of 1,500 bytes. The fastest
round counts, because a shaped link is never too fast and other work on the machine only slows it down. Eight nodes at
1 Gbit/s need 8 Gbit/s in total, which two idle cores can just carry. Needs root.
"""

import json
import multiprocessing
import os
import tempfile
from collections import defaultdict
from multiprocessing.connection import Connection
from statistics import median
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist

from gpuyard import lab
from gpuyard.measure.collectives.expected import LAB_PAYLOAD
from gpuyard.predictor.collectives import ring_all_reduce_seconds

NODES, ROUNDS = 8, 5
# the dilated lab shapes its links like the previous one, so its smaller groups would repeat those results
LABS = (("100 Mbit/s", 1.0, (2, 4, 8)), ("1 Gbit/s", 1.0, (2, 4, 8)), ("10 Gbit/s", 10.0, (8,)))
GRADIENT_SECONDS = 0.32  # wall-clock time for a link to send all gradients once


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="gpuyard-bench-lab-") as home:
        os.environ["GPUYARD_HOME"] = home
        cases = [case for settings in LABS for case in measure(*settings)]
    for case in cases:
        print(
            f"{case['nodes']} nodes at {case['link']}, dilation {case['dilation']:g}: "
            f"{case['ratio']:.3f} of theory (median {case['median_ratio']:.3f}), "
            f"{case['of_link_rate']:.3f} of the bare link rate"
        )
    result = {
        "name": "bench_lab",
        "value": min(case["ratio"] for case in cases),
        "unit": "measured/theoretical speed",
        "better": "nearer to 1",
        "worst_of_link_rate": min(case["of_link_rate"] for case in cases),
        "cases": cases,
    }
    print(json.dumps(result))


def measure(link: str, dilation: float, counts: tuple[int, ...]) -> list[dict[str, Any]]:
    plan = lab.plan_lab(NODES, link, dilation=dilation, name="bench-lab")
    rate = plan.nodes[0].rate_bytes_per_second
    size = int(rate / dilation * GRADIENT_SECONDS) // (4 * NODES) * 4 * NODES
    with lab.temporary(plan) as temporary_lab:
        by_count = run_ranks(temporary_lab, size, counts)
    cases = []
    for count in counts:
        seconds = [wall_seconds / dilation for wall_seconds in by_count[count]]
        theory = float(ring_all_reduce_seconds(count, size, rate))
        cases.append(
            {
                "nodes": count,
                "link": link,
                "dilation": dilation,
                "bytes": size,
                "ratio": round(theory / LAB_PAYLOAD / min(seconds), 3),
                "median_ratio": round(theory / LAB_PAYLOAD / median(seconds), 3),
                "of_link_rate": round(theory / min(seconds), 3),
            }
        )
    return cases


def run_ranks(temporary_lab: lab.Lab, size: int, counts: tuple[int, ...]) -> dict[int, list[float]]:
    """Return the wall-clock seconds of each round by node count.

    The ranks are forked from this process, because importing torch 24 times would dominate the benchmark.
    """
    fork = multiprocessing.get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as directory:
        ranks = [
            fork.Process(target=run_rank, args=(node, rank, directory, (size, counts), sender))
            for rank, node in enumerate(temporary_lab.nodes)
        ]
        for process in ranks:
            process.start()
        sender.close()
        seconds = defaultdict(list)
        try:
            while True:
                count, wall_seconds = receiver.recv()
                seconds[count].append(wall_seconds)
        except EOFError:
            pass
        for process in ranks:
            process.join()
    if any(process.exitcode for process in ranks):
        raise SystemExit("a rank failed; its output is above")
    return seconds


def run_rank(
    node: lab.Node, rank: int, directory: str, task: tuple[int, tuple[int, ...]], sender: Connection
) -> None:
    """Run rounds of all-reduces in groups of the first 2, 4, and 8 nodes."""
    size, counts = task
    node.enter()
    os.environ["GLOO_SOCKET_IFNAME"] = node.interface
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{directory}/rendezvous", rank=rank, world_size=NODES
    )
    groups = {count: dist.new_group(list(range(count))) for count in counts}
    gradients = torch.zeros(size // 4)
    for round_number in range(1 + ROUNDS):  # the first opens connections and does not count
        for count, group in groups.items():
            dist.barrier()
            if rank >= count:
                continue
            dist.all_reduce(torch.zeros(1), group=group)
            start = perf_counter()
            dist.all_reduce(gradients, group=group)
            slowest = torch.tensor([perf_counter() - start], dtype=torch.float64)
            dist.all_reduce(slowest, op=dist.ReduceOp.MAX, group=group)
            if rank == 0 and round_number:
                sender.send((count, float(slowest)))
    dist.barrier()
    sender.close()
    os._exit(0)


if __name__ == "__main__":
    main()
