"""Equal jobs in one machine at once, each on GPUs of its own: what they leave each other."""

from dataclasses import replace

from gpuyard.errors import UserMistake
from gpuyard.hardware.graph import MachineGraph
from gpuyard.hardware.rings import MOST_EXACT_GPUS, AllReduce, all_reduce, best_gpus, ring_rates


def side_by_side(graph: MachineGraph, gpus_each: int, jobs: int) -> tuple[AllReduce, ...]:
    """Every job takes the best GPUs that are left; each rate is what it gets while all exchange.

    NVLinks join two GPUs of one job and are never shared; PCIe switches and their uplinks are.
    """
    if jobs * gpus_each > len(graph.gpus):
        raise UserMistake(
            f"{jobs} jobs of {gpus_each} GPUs need {jobs * gpus_each}; "
            f"{graph.name} has {len(graph.gpus)}"
        )
    free = list(graph.gpus)
    alone: list[AllReduce] = []
    for _ in range(jobs):
        few = len(graph.gpus) <= MOST_EXACT_GPUS
        chosen = best_gpus(graph, gpus_each, free) if few else all_reduce(graph, free[:gpus_each])
        alone.append(chosen)
        free = [gpu for gpu in free if gpu not in chosen.gpus]
    over_pcie = [job for job in alone if job.kind not in ("nvlink", "none")]
    rates = iter(ring_rates(graph, [job.rings[0] for job in over_pcie]))
    return tuple(
        replace(job, bytes_per_second=next(rates)) if job in over_pcie else job for job in alone
    )
