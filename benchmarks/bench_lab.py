"""How true a lab is: measured over theoretical speed of an all-reduce, for 2, 4 and 8 nodes.

Theory is the ring, 2·(k−1)/k·N/B, with what frames of 1,500 bytes leave of a link for payload. The
fastest round counts: a shaped link is never too fast by chance, and whatever else the machine does only
slows it down. Eight nodes at 1 Gbit/s ask for 8 Gbit/s in all, which two quiet cores just carry. Needs
root.
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
from gpuyard.predict.collectives import ring_all_reduce_seconds

NODES, ROUNDS = 8, 5
# the dilated lab shapes its links like the one before it, so its smaller groups would be the same again
LABS = (("100 Mbit/s", 1.0, (2, 4, 8)), ("1 Gbit/s", 1.0, (2, 4, 8)), ("10 Gbit/s", 10.0, (8,)))
GRADIENT_SECONDS = 0.32  # that a link takes for all gradients once, as the machine runs


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="gpuyard-bench-lab-") as home:
        os.environ["GPUYARD_HOME"] = home
        cases = [case for one in LABS for case in measure(*one)]
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
    with lab.temporary(plan) as made:
        by_count = run(made, size, counts)
    cases = []
    for count in counts:
        seconds = [took / dilation for took in by_count[count]]
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


def run(made: lab.Lab, size: int, counts: tuple[int, ...]) -> dict[int, list[float]]:
    """Seconds of each round by node count, as the machine's clock saw them.

    Ranks are forked from this process, which has torch already: to start it 24 times would be most of
    the benchmark.
    """
    fork = multiprocessing.get_context("fork")
    hears, says = fork.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as directory:
        ranks = [
            fork.Process(target=rank_on, args=(node, rank, directory, (size, counts), says))
            for rank, node in enumerate(made.nodes)
        ]
        for process in ranks:
            process.start()
        says.close()
        seconds = defaultdict(list)
        try:
            while True:
                count, took = hears.recv()
                seconds[count].append(took)
        except EOFError:
            pass
        for process in ranks:
            process.join()
    if any(process.exitcode for process in ranks):
        raise SystemExit("a rank failed; what it said is above")
    return seconds


def rank_on(
    node: lab.Node, rank: int, directory: str, task: tuple[int, tuple[int, ...]], says: Connection
) -> None:
    """Rounds of all-reduces in groups of the first 2, 4 and 8 nodes."""
    size, counts = task
    node.enter()
    os.environ["GLOO_SOCKET_IFNAME"] = node.interface
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{directory}/rendezvous", rank=rank, world_size=NODES
    )
    groups = {count: dist.new_group(list(range(count))) for count in counts}
    gradients = torch.zeros(size // 4)
    for round_number in range(1 + ROUNDS):  # the first opens connections and is not counted
        for count, group in groups.items():
            dist.barrier()
            if rank >= count:
                continue
            dist.all_reduce(torch.zeros(1), group=group)
            start = perf_counter()
            dist.all_reduce(gradients, group=group)
            took = torch.tensor([perf_counter() - start], dtype=torch.float64)
            dist.all_reduce(took, op=dist.ReduceOp.MAX, group=group)
            if rank == 0 and round_number:
                says.send((count, float(took)))
    dist.barrier()
    says.close()
    os._exit(0)


if __name__ == "__main__":
    main()
