"""Which machines a job of so many GPUs gets."""

from dataclasses import dataclass

from gpuyard.errors import UserMistake


@dataclass(frozen=True)
class Placement:
    """So many GPUs on each of so many machines; the last machine may be used in part."""

    gpus: int
    nodes: int
    gpus_per_node: int


def place(
    gpus: int, nodes_available: int, gpus_in_machine: int, gpus_per_node: int | None = None
) -> Placement:
    """Fill machines one after the other, or take the same number from each where that is asked for."""
    per_node = gpus_in_machine if gpus_per_node is None else gpus_per_node
    if per_node > gpus_in_machine:
        raise UserMistake(f"{per_node} GPUs a node: each machine has {gpus_in_machine}")
    if gpus_per_node is not None and gpus % per_node:
        raise UserMistake(f"{gpus} GPUs can't be spread as {per_node} a node")
    nodes = -(-gpus // per_node)
    if nodes > nodes_available:
        has = f"{nodes_available} × {gpus_in_machine} GPUs"
        raise UserMistake(
            f"{gpus} GPUs at {per_node} a node need {nodes} nodes; the cluster has {has}"
        )
    return Placement(gpus, nodes, min(gpus, per_node))
