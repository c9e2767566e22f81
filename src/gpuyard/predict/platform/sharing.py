"""Several equal jobs on the same machines: each gets its share of ports, PCIe, storage and cores.

It is reckoned as if all of them exchanged at the same time, which is the worst that can happen.
"""

from dataclasses import replace
from functools import partial

from gpuyard.hardware import host_to_gpu_bytes_per_second, machine_graph, side_by_side
from gpuyard.predict.platform.fabric import Fabric, Pipe, between_machines
from gpuyard.predict.platform.platform import Platform, describe, machine_of, network_of, rate_of
from gpuyard.predict.tuning import fitted
from gpuyard.specs import Cluster


def shared(platform: Platform, cluster: Cluster, beside: int) -> Platform:
    """The platform as one of `beside + 1` jobs sees it."""
    if not beside:
        return platform
    jobs = beside + 1
    gpu, machine = machine_of(cluster)
    graph = machine_graph(machine.topology, gpu, machine.gpus)

    def inside(gpus_used: int) -> Pipe:
        alone = platform.inside(gpus_used)
        slowest = min(side_by_side(graph, gpus_used, jobs), key=rate_of)
        rate = min(alone.bytes_per_second, rate_of(slowest))
        return Pipe(rate, alone.latency_seconds, describe(slowest))

    def host_to_gpu(gpus_used: int) -> float:
        taken = [gpu for job in side_by_side(graph, gpus_used, jobs) for gpu in job.gpus]
        return host_to_gpu_bytes_per_second(graph, taken)

    network = network_of(cluster)
    fabric = None if network is None else _share(between_machines(network)[0], jobs)
    storage, cores = platform.storage_bytes_per_second, platform.cores
    return replace(
        platform,
        inside=inside,
        between=None if fabric is None else partial(fabric.pipe, tuning=fitted()),
        host_to_gpu_bytes_per_second=host_to_gpu,
        storage_bytes_per_second=None if storage is None else storage / jobs,
        cores=None if cores is None else cores / jobs,
        beside=beside,
        unshared=platform,
    )


def _share(fabric: Fabric, jobs: int) -> Fabric:
    # a cap on one flow holds for each job's flows; the ports are what they share
    return replace(
        fabric,
        name=f"{fabric.name}, shared by {jobs} jobs",
        wire_bytes_per_second=fabric.wire_bytes_per_second / jobs,
    )
