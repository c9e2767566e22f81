"""The cluster as large models see it: GPU rates, memory, and the links of groups inside and between machines."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np

from gpuyard.catalog import Gpu
from gpuyard.errors import UserMistake
from gpuyard.hardware.clusters import resolve_machine
from gpuyard.predictor.platform import Platform, create_platform
from gpuyard.predictor.table import Floats, Integers
from gpuyard.predictor.transport import Pipe
from gpuyard.specs import Cluster

Column = Floats | float
NARROW_PRECISIONS: frozenset[str] = frozenset({"fp8", "mxfp8", "nvfp4"})
_SIZES = 11  # groups of 1, 2, 4, … 1,024 GPUs


@dataclass(frozen=True)
class ClusterColumns:
    """Rates of one cluster, or of one per row."""

    gemm_flops_per_second: Column  # peak in the training precision
    attention_flops_per_second: Column  # peak of attention, which stays in 16 bits
    memory_bytes_per_second: Column
    memory_bytes: Column
    domain: Column  # GPUs that NVLink or PCIe connects
    inside: Floats  # bytes per second of a ring of 1, 2, 4, … GPUs; one row per cluster
    between_bytes_per_second: Column  # of one GPU's share of its machine's network ports
    hop_seconds: Column  # latency between machines

    def take(self, index: Integers) -> "ClusterColumns":
        """Return the rows of an index."""
        return ClusterColumns(*(np.asarray(column)[index] for column in vars(self).values()))

    def group_rate(self, members: Column, stride: Column) -> Floats:
        """Return the rate at which each member of a group sends, if members are `stride` GPUs apart.

        Groups that leave a machine share its ports: a machine's rate is divided among its GPUs, and members of one
        group in the same machine add up their shares, because a ring leaves the machine only once.
        """
        members, stride = np.asarray(members, float), np.asarray(stride, float)
        here = np.clip(np.floor(self.domain / stride), 1.0, members)
        size = np.clip(np.ceil(np.log2(np.maximum(here, 1.0))), 0, _SIZES - 1).astype(int)
        inside = (
            self.inside[np.arange(len(self.inside)), np.broadcast_to(size, (len(self.inside),))]
            if len(self.inside) > 1
            else self.inside[0][size]
        )
        outside = self.between_bytes_per_second * here
        leaves = members * stride > np.asarray(self.domain)
        return np.asarray(np.where(leaves, np.minimum(inside, outside), inside), dtype=float)


def find_peak_flops(gpu: Gpu, precision: str) -> float:
    """Return the peak of a precision, or raise UserMistake if the GPU does not have it."""
    if precision in NARROW_PRECISIONS:
        tflops = gpu.fp4_tflops if precision == "nvfp4" else gpu.fp8_tflops
        is_too_old = precision == "mxfp8" and gpu.architecture in (
            "Hopper",
            "Ada Lovelace",
            "CDNA 3",
        )
        if tflops is None or is_too_old:
            raise UserMistake(
                f"{gpu.name} does not compute in {precision}; "
                f"use --precision {'fp8' if gpu.fp8_tflops else 'bf16' if gpu.bf16_tflops else 'fp16'}"
            )
        return tflops * 1e12
    flops = gpu.peak_flops(precision)
    if flops is None:
        best = next(p for p in ("bf16", "fp16", "fp32") if gpu.peak_flops(p))
        raise UserMistake(f"{gpu.name} does not compute in {precision}; use --precision {best}")
    return flops


def choose_usual_precision(gpu: Gpu) -> Literal["bf16", "fp16", "fp32"]:
    """Return the precision in which a large model is usually trained on this GPU."""
    return "bf16" if gpu.bf16_tflops else "fp16" if gpu.fp16_tflops else "fp32"


def find_sixteen_bit_peak(gpu: Gpu) -> float:
    """Return the peak in 16 bits, in which attention runs and MFU is counted."""
    return (gpu.bf16_tflops or gpu.fp16_tflops or gpu.fp32_tflops or 1.0) * 1e12


def describe_cluster(cluster: Cluster, precision: str, nodes: int | None = None) -> ClusterColumns:
    """Return the columns of a cluster; `nodes` are the machines in use."""
    return stack_clusters([cluster], [precision], [nodes or cluster.nodes])


def stack_clusters(
    clusters: Sequence[Cluster], precisions: Sequence[str], nodes: Sequence[int]
) -> ClusterColumns:
    """Return one row per cluster; equal clusters are described once."""
    platforms: dict[str, tuple[Platform, Gpu, list[float]]] = {}
    rows = []
    for cluster, precision, used in zip(clusters, precisions, nodes, strict=True):
        key = cluster.model_dump_json()
        if key not in platforms:
            platform = create_platform(cluster)
            platforms[key] = (
                platform,
                resolve_machine(cluster)[0],
                list_inside_rates(platform.inside, platform.gpus_per_node),
            )
        platform, gpu, inside = platforms[key]
        between, hop = np.inf, 0.0
        if used > 1 and platform.between is not None:
            pipe = platform.between(used)
            between, hop = pipe.bytes_per_second / platform.gpus_per_node, pipe.latency_seconds
        rows.append(
            (find_peak_flops(gpu, precision), find_sixteen_bit_peak(gpu), gpu.memory_bytes_per_second,
             float(gpu.memory_bytes), float(platform.gpus_per_node), inside, between, hop)
        )  # fmt: skip
    count = len(fields(ClusterColumns))  # an empty table has all columns, too
    return ClusterColumns(*(np.array([row[i] for row in rows], dtype=float) for i in range(count)))


def list_inside_rates(pipe: Callable[[int], Pipe], gpus: int) -> list[float]:
    """Return the rate of a ring by the size of its group, for groups of 1, 2, 4, … of a machine's GPUs."""
    counts = [min(2**exponent, gpus) for exponent in range(_SIZES)]
    pipes = [pipe(count) for count in counts]
    # switches speed up only all-reduces, so not the rings of other exchanges
    return [each.bytes_per_second / each.switch_gain for each in pipes]
