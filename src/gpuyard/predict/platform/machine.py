"""How the GPUs of one machine hang together, as an exchange sees it."""

from dataclasses import dataclass

import numpy as np

from gpuyard.catalog import Gpu
from gpuyard.hardware import (
    MOST_EXACT_GPUS,
    AllReduce,
    MachineGraph,
    all_reduce,
    best_gpus,
    host_to_gpu_bytes_per_second,
    machine_graph,
    side_by_side,
)
from gpuyard.predict import constants as c
from gpuyard.predict.constants import Constant
from gpuyard.predict.platform.fabric import Pipe
from gpuyard.predict.platform.transport import inside_rate
from gpuyard.predict.tuning import fitted

RING_WORDS = {
    "nvlink": "NVLink",
    "fabric": "links between the GPUs",
    "pcie": "PCIe",
    "socket": "the link between the sockets",
    "internal": "PCIe",
    "none": "no link",
}


@dataclass(frozen=True)
class InMachine:
    """The links between its GPUs, and to them."""

    graph: MachineGraph

    @classmethod
    def of(cls, gpu: Gpu, gpus: int, topology: str, socket_link: str | None = None) -> "InMachine":
        """Raises where such a GPU can't be laid out so."""
        return cls(machine_graph(topology, gpu, gpus, socket_link))

    def pipe(self, gpus_used: int, jobs: int = 1) -> Pipe:
        """What an exchange among so many GPUs gets: of several such jobs, the one that gets least."""
        ring = min(self._rings(gpus_used, jobs), key=ring_rate)
        return Pipe(ring_rate(ring), ring.latency_seconds * c.HOP_FACTOR.value, _describe(ring))

    def host_to_gpu_bytes_per_second(self, gpus_used: int, jobs: int = 1) -> float:
        """To each, while all of them are fed."""
        fed = [gpu for ring in self._rings(gpus_used, jobs) for gpu in ring.gpus]
        return host_to_gpu_bytes_per_second(self.graph, fed)

    @property
    def constants(self) -> tuple[Constant, ...]:
        """What the links stand on, where there are any."""
        count = len(self.graph.gpus)
        if count == 1:
            return ()
        (whole,) = self._rings(count)
        link = Constant("link_inside", ring_rate(whole), "bytes/s", "catalog", _describe(whole))
        staged = (c.STAGED_RATE, c.STAGED_SOCKET_SHARE) if whole.staged else ()
        return (link, c.HOP_FACTOR, *staged)

    def _rings(self, gpus_used: int, jobs: int = 1) -> tuple[AllReduce, ...]:
        """Through the best of them, one for each job."""
        if jobs > 1:
            return side_by_side(self.graph, gpus_used, jobs)
        if len(self.graph.gpus) > MOST_EXACT_GPUS:  # too many to try every choice: take the first
            return (all_reduce(self.graph, self.graph.gpus[:gpus_used]),)
        return (best_gpus(self.graph, gpus_used),)


def ring_rate(ring: AllReduce) -> float:
    """What a ring gets, here and wherever else a machine's all-reduce is spoken of."""
    wires, across = np.array([ring.bytes_per_second]), np.array([ring.kind == "socket"])
    return float(inside_rate(wires, np.array([ring.staged]), across, fitted())[0])


def _describe(ring: AllReduce) -> str:
    """ "4 GPUs over PCIe"."""
    staged = ", staged through host memory" if ring.staged else ""
    return f"{len(ring.gpus)} GPUs over {RING_WORDS[ring.kind]}{staged}"
