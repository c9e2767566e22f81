"""The places of a run's GPUs, and the bytes that it moves between them."""

from dataclasses import dataclass

from gpuyard.errors import UserMistake


@dataclass(frozen=True)
class Placement:
    """The number of GPUs and machines of a job; the last machine may be used in part."""

    gpus: int
    nodes: int
    gpus_per_node: int


def place(
    gpus: int, nodes_available: int, gpus_in_machine: int, gpus_per_node: int | None = None
) -> Placement:
    """Fill machines one after the other, or use `gpus_per_node` GPUs of each if given."""
    per_node = gpus_in_machine if gpus_per_node is None else gpus_per_node
    if per_node > gpus_in_machine:
        raise UserMistake(f"{per_node} GPUs per node: each machine has {gpus_in_machine}")
    if gpus_per_node is not None and gpus % per_node:
        raise UserMistake(f"{gpus} GPUs cannot be spread as {per_node} per node")
    nodes = -(-gpus // per_node)
    if nodes > nodes_available:
        available = f"{nodes_available} × {gpus_in_machine} GPUs"
        raise UserMistake(
            f"{gpus} GPUs at {per_node} per node need {nodes} nodes; the cluster has {available}"
        )
    return Placement(gpus, nodes, min(gpus, per_node))


@dataclass(frozen=True)
class Move:
    """A transfer over a GPU's link in one step."""

    name: str
    size_bytes: float
