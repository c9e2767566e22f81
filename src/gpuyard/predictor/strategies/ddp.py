"""PyTorch's DistributedDataParallel, and the all-reduce of gradients that it shares with Horovod."""

from typing import ClassVar

import numpy as np

from gpuyard.catalog import ModelProfile
from gpuyard.predictor import constants as c
from gpuyard.predictor.collectives import hierarchical_all_reduce_seconds
from gpuyard.predictor.constants import Constant, Tuning
from gpuyard.predictor.placement import Move
from gpuyard.predictor.strategies import remedies as proposals
from gpuyard.predictor.strategies.base import SecondsBySize, Strategy
from gpuyard.predictor.table import TREE_SHARE, Floats, Paths, StepTable


def all_reduce(paths: Paths, launch_seconds: float) -> SecondsBySize:
    """Return the time of a ring or tree all-reduce, whichever NCCL would choose for the message size.

    t = launch + hops · α + bytes / B. The first two terms dominate small messages, so the effective
    bandwidth grows with the message size.
    """
    gpus, several = paths.gpus, paths.gpus > 1
    single_node = paths.nodes == 1
    # A flat ring runs at its slowest link: NCCL cuts a message into chunks, so all links work at once.
    per_byte = np.maximum(paths.inside_seconds_per_byte, paths.between_seconds_per_byte)
    # All hops of a flat ring except `nodes` stay inside a machine.
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
    # Inside one machine NCCL always uses a ring.
    tree_latency = np.where(single_node, np.inf, tree_latency)
    tree_per_byte = 2 / TREE_SHARE * per_byte

    def seconds(size_bytes: Floats) -> Floats:
        ring = ring_latency + ring_per_byte * size_bytes
        return np.minimum(ring, tree_latency + tree_per_byte * size_bytes)

    return seconds


def hierarchical(paths: Paths, launch_seconds: float) -> SecondsBySize:
    """Return the time of a hierarchical all-reduce: inside each machine, between machines, inside again.

    The three collectives run in sequence, with one ring per rail between machines. Between n machines, each port
    carries 2(n−1)/n of the message; with a flat ring over k GPUs it carries 2(k−1)/k. For two machines with many GPUs
    that is half as much. The time is infinite if there are not two levels.
    """
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
    """One process per GPU with an all-reduce; the library chooses between ring and tree."""

    options = frozenset({"accumulate", "bucket_mb", "compress", "hierarchical", "local_sgd"})
    calibrated = True
    remedies: ClassVar[tuple[proposals.Proposer, ...]] = (
        proposals.propose_half_precision,
        proposals.propose_accumulation,
        proposals.propose_local_sgd,
        proposals.propose_power_sgd,
        proposals.propose_hierarchical,
        proposals.propose_bucket_size,
    )

    def bucket_seconds(self, table: StepTable) -> SecondsBySize:
        launch = table.traffic.launch_seconds
        flat = all_reduce(table, launch)
        if not table.traffic.hierarchical:
            return flat
        levels = hierarchical(table, launch)
        return lambda size_bytes: np.minimum(flat(size_bytes), levels(size_bytes))

    def list_moves(
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
    """A ring with a small first bucket, so that the exchange starts early, and larger buckets after it."""

    name = "ddp"
    constants = (FIRST_BUCKET, BUCKET, c.LAUNCH, c.BACKWARD_SHARE)
    bucket_option = "bucket_cap_mb"
    hierarchical_caveat = "a custom communication hook: reduce-scatter, all-reduce, all-gather"

    def bucket_caps(self, cap_bytes: float | None) -> tuple[float, ...]:
        cap = cap_bytes or BUCKET.value
        return (min(FIRST_BUCKET.value, cap), cap)

    def slowdowns(self, tuning: Tuning) -> tuple[Constant, ...]:
        """Return the slowdowns; only DDP's tables show an additional one across machines."""
        return (c.slowdown(tuning), c.slowdown_between(tuning))
