"""PyTorch's DistributedDataParallel: gradients are all-reduced over the links of machines, as Horovod's are too."""

from typing import ClassVar

import numpy as np

from gpuyard.catalog import ModelProfile
from gpuyard.predict import constants as c
from gpuyard.predict.collectives import hierarchical_all_reduce_seconds
from gpuyard.predict.constants import Constant, Tuning
from gpuyard.predict.strategies import remedies as offered
from gpuyard.predict.strategies.base import SecondsBySize, Strategy
from gpuyard.predict.table import Floats, Move, Paths, StepTable

# NCCL's trees are those of Sanders, Speck and Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and
# scan" (2009); it reckons their all-reduce at 0.92 of the ring's rate (NVIDIA/nccl src/graph/tuning.cc)
TREE_SHARE = 0.92


def all_reduce(paths: Paths, launch_seconds: float) -> SecondsBySize:
    """Ring or tree, whichever is faster for the message, as NCCL would choose.

    t = launch + hops · α + bytes / B. Of a small message the first two are all there is, so the
    bandwidth that a message sees grows with its size.
    """
    gpus, several = paths.gpus, paths.gpus > 1
    single_node = paths.nodes == 1
    # of a flat ring's slowest link: NCCL cuts a message into chunks, so that all links work at once
    per_byte = np.maximum(1 / paths.inside_bytes_per_second, 1 / paths.between_bytes_per_second)
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
    ring_latency = np.where(several, ring_latency, 0.0)
    ring_per_byte = np.where(several, 2 * (gpus - 1) / gpus * per_byte, 0.0)
    # inside one machine it is always a ring
    tree_latency = np.where(single_node, np.inf, tree_latency)
    tree_per_byte = 2 / TREE_SHARE * per_byte

    def seconds(size_bytes: Floats) -> Floats:
        ring = ring_latency + ring_per_byte * size_bytes
        return np.minimum(ring, tree_latency + tree_per_byte * size_bytes)

    return seconds


def hierarchical(paths: Paths, launch_seconds: float) -> SecondsBySize:
    """Inside each machine, one ring a rail between the machines, inside again: three collectives after
    each other. Between n machines each port carries 2(n−1)/n of the message, where a flat ring over k
    GPUs puts 2(k−1)/k on it: half as much for two machines of many GPUs. Infinite where there are no
    two levels."""
    two_levels = (paths.nodes > 1) & (paths.gpus_per_node > 1)

    def seconds(size_bytes: Floats) -> Floats:
        exchanged = hierarchical_all_reduce_seconds(
            paths.gpus_per_node,
            paths.nodes,
            size_bytes,
            intra_bytes_per_second=paths.inside_bytes_per_second,
            intra_latency_seconds=paths.inside_latency_seconds,
            inter_bytes_per_second=paths.between_bytes_per_second,
            inter_latency_seconds=paths.between_latency_seconds,
        )
        return np.where(two_levels, 3 * launch_seconds + exchanged, np.inf)

    return seconds


class Ring(Strategy):
    """One process a GPU. Whether it is a ring or a tree, the library chooses."""

    options = frozenset({"accumulate", "bucket_mb", "compress", "hierarchical", "local_sgd"})
    calibrated = True
    remedies: ClassVar[tuple[offered.Proposals, ...]] = (
        offered.half_precision,
        offered.accumulation,
        offered.local_sgd,
        offered.power_sgd,
        offered.hierarchical,
        offered.bucket_size,
    )

    def bucket_seconds(self, table: StepTable) -> SecondsBySize:
        launch = table.traffic.launch_seconds
        flat = all_reduce(table, launch)
        if not table.traffic.hierarchical:
            return flat
        levels = hierarchical(table, launch)
        return lambda size_bytes: np.minimum(flat(size_bytes), levels(size_bytes))

    def moves(
        self, profile: ModelProfile, gpus: int, batch_per_gpu: int, sent_bytes: float
    ) -> tuple[Move, ...]:
        if gpus == 1:
            return ()
        return (Move("gradients", 2 * (gpus - 1) / gpus * sent_bytes),)

    def overlap(self, tuning: Tuning) -> Constant:
        return c.overlap(tuning.overlap_inside)

    def overlap_between(self, tuning: Tuning) -> Constant:
        return c.overlap_between(tuning.overlap_between)


FIRST_BUCKET = Constant(
    "ddp_first_bucket", 1024 * 1024, "bytes", "published", "torch DDP: first bucket of 1 MiB"
)
BUCKET = Constant(
    "ddp_bucket", 25 * 1024 * 1024, "bytes", "published", "torch DDP: bucket_cap_mb=25"
)


class Ddp(Ring):
    """A small first bucket, so that the exchange begins early, then larger ones."""

    name = "ddp"
    constants = (FIRST_BUCKET, BUCKET, c.LAUNCH, c.BACKWARD_SHARE)
    bucket_option = "bucket_cap_mb"
    hierarchical_caveat = "a communication hook of your own: reduce-scatter, all-reduce, all-gather"

    def bucket_caps(self, cap_bytes: float | None) -> tuple[float, ...]:
        cap = cap_bytes or BUCKET.value
        return (min(FIRST_BUCKET.value, cap), cap)

    def slowdowns(self, tuning: Tuning) -> tuple[Constant, ...]:
        """Only DDP's tables show more of it over machines."""
        return (c.slowdown(tuning), c.slowdown_between(tuning))
