"""Several equal jobs on the same machines: each gets its share of ports, PCIe, storage and cores.

It is reckoned as if all of them exchanged at the same time, which is the worst that can happen.
"""

from dataclasses import replace
from functools import partial

from gpuyard.hardware import MachineGraph
from gpuyard.hardware.clusters import machine_of
from gpuyard.predict.platform.fabric import Pipe, between_machines
from gpuyard.predict.platform.machine import InMachine
from gpuyard.predict.platform.platform import Platform, network_of
from gpuyard.predict.tuning import fitted
from gpuyard.specs import Cluster


def shared(
    platform: Platform, cluster: Cluster, beside: int, graph: MachineGraph | None = None
) -> Platform:
    """The platform as one of `beside + 1` jobs sees it."""
    if not beside:
        return platform
    jobs = beside + 1
    gpu, machine = machine_of(cluster)
    there = (
        InMachine(graph)
        if graph
        else InMachine.of(gpu, machine.gpus, machine.topology, machine.socket_link)
    )

    def inside(gpus_used: int) -> Pipe:
        alone, crowded = platform.inside(gpus_used), there.pipe(gpus_used, jobs)
        rate = min(alone.bytes_per_second, crowded.bytes_per_second)
        return Pipe(rate, alone.latency_seconds, crowded.name)

    network = network_of(cluster)
    fabric = between_machines(network)[0] if network else None
    if fabric is not None:
        fabric = replace(
            fabric,
            name=f"{fabric.name}, shared by {jobs} jobs",
            # a cap on one flow holds for each job's flows; the ports are what they share
            wire_bytes_per_second=fabric.wire_bytes_per_second / jobs,
        )
    storage, cores = platform.storage_bytes_per_second, platform.cores
    return replace(
        platform,
        inside=inside,
        between=partial(fabric.pipe, tuning=fitted()) if fabric else None,
        host_to_gpu_bytes_per_second=partial(there.host_to_gpu_bytes_per_second, jobs=jobs),
        storage_bytes_per_second=None if storage is None else storage / jobs,
        cores=None if cores is None else cores / jobs,
        beside=beside,
        unshared=platform,
    )
