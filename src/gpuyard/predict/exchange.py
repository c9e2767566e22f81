"""Seconds of exchanging buckets of gradients, for many configurations at once."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpuyard.predict import collectives

Floats = npt.NDArray[np.float64]
# NCCL reckons a tree's all-reduce at 0.92 of the ring's rate (NVIDIA/nccl src/graph/tuning.cc)
TREE_SHARE = 0.92


@dataclass(frozen=True)
class Paths:
    """What the bytes of an exchange cross, one entry a configuration."""

    nodes: Floats
    gpus_per_node: Floats
    inside_bytes_per_second: Floats
    inside_latency_seconds: Floats
    between_bytes_per_second: Floats  # infinite where there is only one machine
    between_latency_seconds: Floats

    @property
    def gpus(self) -> Floats:
        return self.nodes * self.gpus_per_node


def seconds_per_byte(paths: Paths) -> Floats:
    """Of a flat ring's slowest link: NCCL cuts a message into chunks, so that all links work at once."""
    return np.asarray(
        np.maximum(1 / paths.inside_bytes_per_second, 1 / paths.between_bytes_per_second)
    )


def all_reduce_seconds(paths: Paths, size: Floats, launch_seconds: float) -> Floats:
    """Ring or tree, whichever is faster for the message, as NCCL would choose.

    t = launch + hops · α + bytes / B. Of a small message the first two are all there is, so the
    bandwidth that a message sees grows with its size.
    """
    gpus = paths.gpus
    single_node = paths.nodes == 1
    per_byte = seconds_per_byte(paths)
    # all but `nodes` of a flat ring's hops stay inside a machine
    inside_hops = np.where(single_node, gpus - 1, gpus - paths.nodes)
    between_hops = np.where(single_node, 0.0, paths.nodes - 1)
    ring_latency = launch_seconds + 2 * (
        inside_hops * paths.inside_latency_seconds + between_hops * paths.between_latency_seconds
    )
    tree_latency = launch_seconds + 2 * (
        (paths.gpus_per_node - 1) * paths.inside_latency_seconds
        + np.ceil(np.log2(paths.nodes)) * paths.between_latency_seconds
    )
    ring = ring_latency + 2 * (gpus - 1) / gpus * per_byte * size
    tree = tree_latency + 2 / TREE_SHARE * per_byte * size
    fastest = np.where(single_node, ring, np.minimum(ring, tree))
    return np.where(gpus > 1, fastest, 0.0)


def parameter_server_seconds(paths: Paths, size: Floats) -> Floats:
    """Every worker sends its gradients to servers spread over the nodes and fetches the parameters."""
    inside = 2 * size / paths.inside_bytes_per_second
    between = collectives.parameter_server_seconds(
        paths.gpus, paths.nodes, size, paths.between_bytes_per_second
    )
    return np.where(paths.gpus > 1, inside + between + _two_hops(paths), 0.0)


def distributed_replicated_seconds(paths: Paths, size: Floats) -> Floats:
    """The GPUs of a machine add up their gradients first, so each machine is one worker."""
    inside = 2 * size / paths.inside_bytes_per_second
    between = collectives.parameter_server_seconds(
        paths.nodes, paths.nodes, size, paths.between_bytes_per_second
    )
    return np.where(paths.gpus > 1, inside + between + _two_hops(paths), 0.0)


def _two_hops(paths: Paths) -> Floats:
    hop = np.where(paths.nodes > 1, paths.between_latency_seconds, paths.inside_latency_seconds)
    return np.asarray(2 * hop)
