"""A described machine as a graph, built once, and what its host can feed its GPUs."""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from gpuyard.catalog import Gpu, gpus
from gpuyard.hardware.graph import MachineGraph
from gpuyard.hardware.presets import build_preset


@lru_cache(maxsize=256)
def _build(topology: str, gpu: str, count: int) -> MachineGraph:
    return build_preset(topology, gpus().get(gpu), count)


def machine_graph(topology: str, gpu: Gpu, count: int) -> MachineGraph:
    """The preset's graph; asked for again, it is the same object, so cached answers are kept."""
    return _build(topology, gpu.id, count)


def host_to_gpu_bytes_per_second(graph: MachineGraph, chosen: Sequence[str]) -> float:
    """What each of these GPUs gets when all read from their socket's memory at once."""
    paths = [graph.path(graph.socket_of(gpu), gpu) for gpu in chosen]
    loads = Counter((id(hop.wire), hop.source) for path in paths for hop in path)
    return min(
        hop.wire.bytes_per_second / loads[id(hop.wire), hop.source]
        for path in paths
        for hop in path
    )
