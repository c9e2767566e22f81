"""PyTorch's DataParallel: one process sends parameters and samples to its GPUs and gathers gradients."""

import numpy as np

from gpuyard.catalog import ModelProfile
from gpuyard.predictor import constants as c
from gpuyard.predictor.collectives import pipelined_broadcast_seconds
from gpuyard.predictor.constants import Constant, Tuning
from gpuyard.predictor.placement import Move
from gpuyard.predictor.strategies import remedies as proposals
from gpuyard.predictor.strategies.base import SecondsBySize, Strategy
from gpuyard.predictor.table import Floats, StepTable

BUFFER = Constant(
    "dataparallel_buffer", 10 * 1024 * 1024, "bytes", "published",
    "torch DataParallel: broadcast and reduce in buffers of 10 MiB",
)  # fmt: skip
HOST = Constant(
    "dataparallel_host", 36e-6, "seconds per layer and GPU", "elsewhere",
    f"one process copies the module to every GPU in Python for each step: {c.CPU_RANKS}",
)  # fmt: skip
NO_OVERLAP = Constant(
    "overlap", 0.0, c.OVERLAP_UNIT, "published",
    "DataParallel copies before forward and reduces after backward",
)  # fmt: skip


class DataParallel(Strategy):
    """One process that, at every pass, scatters inputs, copies all parameters, and reduces all gradients."""

    name = "dataparallel"
    unsupported_option = (
        "DataParallel copies all parameters and gradients at every pass: {} needs ddp or horovod"
    )
    max_machines = 1
    machine_limit_reason = "DataParallel is one process in one machine"
    constants = (BUFFER, HOST)
    remedies = (proposals.propose_ddp,)
    no_overlap_reason = "DataParallel hides none of it"
    timeline_note = (
        "Parameters go out before forward and gradients come back after backward; both are "
        "drawn after backward, because the model has only their sum."
    )

    def bucket_caps(self, cap_bytes: float | None) -> tuple[float, ...]:
        return (float("inf"),)

    def bucket_name(self, number: int) -> str:
        return "parameters, gradients"

    def bucket_seconds(self, table: StepTable) -> SecondsBySize:
        inputs = (
            (table.gpus_per_node - 1)
            * table.batch_per_gpu
            * table.traffic.input_bytes_per_sample
            / table.inside_bytes_per_second
        )

        def seconds(size_bytes: Floats) -> Floats:
            messages = np.maximum(1.0, np.ceil(size_bytes / BUFFER.value))
            one_way = pipelined_broadcast_seconds(
                table.gpus_per_node, size_bytes, table.inside_bytes_per_second, messages
            )
            return np.where(table.gpus_per_node > 1, 2 * one_way + inputs, 0.0)

        return seconds

    def list_moves(
        self, profile: ModelProfile, gpus: int, batch_per_gpu: int, sent_bytes: float
    ) -> tuple[Move, ...]:
        """List the transfers over the first GPU's link; the other GPUs forward parameters and gradients."""
        if gpus == 1:
            return ()
        others = (gpus - 1) * batch_per_gpu
        parameters = 4.0 * profile.parameters
        outputs = _count_outputs(profile)
        back = (Move("outputs back", others * 4.0 * outputs),) if outputs else ()
        return (
            Move("samples out", others * profile.input_bytes),
            Move("parameters out", parameters),
            *back,
            Move("gradients back", profile.gradient_bytes),
        )

    def host_seconds(self, profile: ModelProfile, gpus_per_node: Floats) -> Floats:
        seconds_per_gpu = len(profile.layers) * HOST.value
        return np.where(gpus_per_node > 1, seconds_per_gpu * gpus_per_node, 0.0)

    def overlap(self, tuning: Tuning) -> Constant:
        return NO_OVERLAP

    def overlap_between(self, tuning: Tuning) -> Constant:
        return NO_OVERLAP


def _count_outputs(profile: ModelProfile) -> int:
    """Count the output values per sample of a model whose last layer is linear with biases.

    There is one value per bias for each position (one per image, or the tokens of a text). The number of biases is the
    number of parameters minus the multiplications of one position. Return 0 if the layer does not have this form
    because the head shares the weights of an embedding.
    """
    last = profile.layers[0]
    multiplications = last.forward_flops // 2
    positions = -(-multiplications // last.parameters) if last.parameters else 0
    if not 0 < positions < last.parameters:
        return 0
    return max(0, last.parameters * positions - multiplications)
