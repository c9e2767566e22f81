"""The interface of all strategies of data-parallel training; each strategy has its own file."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from gpuyard.catalog import LayerProfile, ModelProfile
from gpuyard.catalog.models import FP32_BYTES, TRANSFORMERS, find_family
from gpuyard.errors import UnknownName
from gpuyard.predictor import constants as c
from gpuyard.predictor.constants import Constant, Tuning
from gpuyard.predictor.placement import Move
from gpuyard.predictor.strategies.remedies import Proposer
from gpuyard.predictor.table import Buckets, Floats, StepTable
from gpuyard.specs import DEFAULT_EXCHANGE, ExchangeOptions, Workload
from gpuyard.specs.workload import GradientDtype, Optimizer

_AUTOCAST_COPY_BYTES = 2
# Bytes per parameter in the optimizer's own state: nothing; the momentum; two moments; two moments in 8 bits with one
# fp32 scale per 256 values (bitsandbytes 0.50.2, `blocksize = 256`; formerly 2,048: arXiv:2110.02861).
STATE_BYTES: dict[Optimizer, float] = {
    "sgd": 0.0,
    "momentum": 4.0,
    "adam": 8.0,
    "adamw": 8.0,
    "adam-8bit": 2 * (1 + 4 / 256),
}


# Memory that CUDA's context and kernels occupy before the first tensor of a model: 1,343 MiB, measured with nvidia-smi's
# counter (Hugging Face, transformers/docs/source/en/model_memory_anatomy.md). Allocators and workspaces need some more.
FRAMEWORK_BYTES = 1343 * 2**20


def resolve_optimizer(workload: Workload, profile: ModelProfile) -> Optimizer:
    """Return the workload's optimizer; by default, AdamW for transformers and SGD with momentum for other models."""
    if workload.optimizer is not None:
        return workload.optimizer
    family = find_family(workload.model_name)
    unnamed_sequences = family is None and profile.sample.startswith("sequence of")
    transformer = family in TRANSFORMERS or (unnamed_sequences and not profile.mostly_cudnn)
    return "adamw" if transformer else "momentum"


def model_bytes(workload: Workload, profile: ModelProfile) -> float:
    """Return the memory that does not depend on the batch, without the framework's.

    Frozen parameters have neither gradient nor optimizer state. Gradients and moments have the width of their
    parameters. PyTorch's autocast keeps parameters and gradients in fp32, plus a 16-bit copy of every weight until
    backward has used it; weights that are 16 bits wide are not copied.
    """
    copies = 0.0
    if workload.autocast and profile.bytes_per_parameter > _AUTOCAST_COPY_BYTES:
        copies = float(_AUTOCAST_COPY_BYTES * profile.parameters)
    state = STATE_BYTES[resolve_optimizer(workload, profile)] / FP32_BYTES * profile.gradient_bytes
    return profile.parameter_bytes + profile.gradient_bytes + state + copies


def activation_bytes(workload: Workload, profile: ModelProfile, batch_per_gpu: Floats) -> Floats:
    """Return the memory of a batch's activations when backward begins."""
    return np.asarray(batch_per_gpu * profile.sample_bytes(autocast=workload.autocast))


# Gradients have the number format of the parameters, which autocast leaves in fp32. These frameworks send them in the
# training precision: apex at O2 casts the model (as in NVIDIA's BERT, GNMT, and Transformer-XL), DeepSpeed's
# communication_data_type follows fp16 or bf16, and tf_cnn_benchmarks casts gradients with --use_fp16
# (compact_gradient_transfer, on by default).
_NARROW_GRADIENT_FRAMEWORKS = frozenset({"apex", "deepspeed", "tf-cnn-benchmarks"})


def resolve_gradient_dtype(workload: Workload) -> GradientDtype:
    """Return the number format of gradients on the network if no script compresses them."""
    if workload.gradient_dtype is not None:
        return workload.gradient_dtype
    if workload.framework in _NARROW_GRADIENT_FRAMEWORKS and workload.precision in ("fp16", "bf16"):
        return workload.precision
    return "fp32"


SecondsBySize = Callable[[Floats], Floats]
_HALF = 0.5  # size of fp16 or bf16 gradients relative to fp32


class Strategy(ABC):
    """A strategy of data-parallel training.

    By default, each worker holds the whole model, and gradients of every step are exchanged in buckets during backward.
    """

    name: ClassVar[str]
    options: ClassVar[frozenset[str]] = frozenset()  # supported fields of `ExchangeOptions`
    unsupported_option: ClassVar[str] = ""  # message for other options; {} stands for their names
    max_machines: ClassVar[int | None] = None
    machine_limit_reason: ClassVar[str] = ""
    constants: ClassVar[tuple[Constant, ...]] = ()  # constants of its exchange
    remedies: ClassVar[tuple[Proposer, ...]] = ()  # possible changes to its exchange
    bucket_option: ClassVar[str] = ""  # the framework's option for the bucket size
    hierarchical_caveat: ClassVar[str] = ""
    synchronous: ClassVar[bool] = True  # False: no worker waits for the slowest
    # whether runs on one machine, which are rings, determine how much of its exchange hides
    calibrated: ClassVar[bool] = False
    no_overlap_reason: ClassVar[str] = ""  # set if no exchange hides behind compute
    timeline_note: ClassVar[str] = ""  # note below every timeline of this strategy

    def find_conflict(self, exchange: ExchangeOptions) -> str | None:
        """Return a message about options that this strategy does not support, or None."""
        unsupported = exchange.non_default_keys - self.options
        if not unsupported:
            return None
        return self.unsupported_option.format(", ".join(sorted(unsupported)))

    # the exchange of gradients

    @abstractmethod
    def bucket_caps(self, cap_bytes: float | None) -> tuple[float, ...]:
        """Return the sizes that close the first bucket, the second, and so on.

        The last size applies to all further buckets. `cap_bytes` is the user's choice, if any.
        """

    def buckets(self, profile: ModelProfile, exchange: ExchangeOptions) -> Buckets:
        """Return the groups of gradients and when each group is ready."""
        caps = self.bucket_caps(exchange.bucket_bytes)
        return _fill_cached(_ProfileKey(profile), caps, exchange.powersgd_rank)

    def bucket_name(self, number: int) -> str:
        return f"bucket {number}"

    def resolve_sent_dtype(self, workload: Workload, exchange: ExchangeOptions) -> GradientDtype:
        """Return the number format of transfers: gradients, or parameters with local SGD.

        Only a script can narrow parameters.
        """
        if exchange.half_precision is not None:
            return exchange.half_precision
        sends_gradients = "compress" in self.options and exchange.local_sgd == 1
        return resolve_gradient_dtype(workload) if sends_gradients else "fp32"

    def describe_gradients(
        self, workload: Workload, exchange: ExchangeOptions = DEFAULT_EXCHANGE
    ) -> str:
        """Return a sentence about the number format of gradients, or nothing if it is the usual one."""
        if exchange.half_precision or exchange.local_sgd > 1:
            return ""
        sent = self.resolve_sent_dtype(workload, exchange)
        if workload.gradient_dtype is not None:
            return f"Gradients: sent as {sent}, as set in the workload."
        if sent == "fp32":
            return ""
        return (
            f"Gradients: sent as {sent}, the default of {workload.framework}; "
            "set 'gradient_dtype: fp32' if yours differs."
        )

    def sent_share(self, workload: Workload, exchange: ExchangeOptions) -> float:
        """Return the share of the buckets' bytes that is sent."""
        return 1.0 if self.resolve_sent_dtype(workload, exchange) == "fp32" else _HALF

    @abstractmethod
    def bucket_seconds(self, table: StepTable) -> SecondsBySize:
        """Return a function from a bucket's size to its exchange time in every row."""

    def exchange_seconds(self, table: StepTable, compute_seconds: Floats) -> tuple[Floats, Floats]:
        """Return a step's total exchange time, and the part exposed if compute and exchange did not interfere.

        Buckets are sent in sequence, each once it is full. The exposed time is the maximum over i of the exchange times
        from bucket i on minus the backward time that remains when bucket i is full.
        """
        backward = compute_seconds * table.traffic.backward_share
        remaining = np.zeros_like(compute_seconds)
        exposed = np.zeros_like(compute_seconds)
        seconds_by_size = self.bucket_seconds(table)
        cache: dict[float, Floats] = {}  # most buckets have the same size
        buckets = table.traffic.buckets
        for size, ready in zip(buckets.size_bytes[::-1], buckets.ready_share[::-1], strict=True):
            if size not in cache:
                cache[size] = seconds_by_size(size * table.sent_share)
            remaining = remaining + cache[size]
            exposed = np.maximum(exposed, remaining - (1 - ready) * backward)
        return remaining, exposed

    def list_moves(
        self, profile: ModelProfile, gpus: int, batch_per_gpu: int, sent_bytes: float
    ) -> tuple[Move, ...]:
        """List the transfers over a GPU's link in one step, in order.

        `sent_bytes` is the mean number of bytes that each worker has to send per step.
        """
        del profile, gpus, batch_per_gpu, sent_bytes
        return ()

    # what it needs from a machine

    def memory_bytes(
        self,
        workload: Workload,
        profile: ModelProfile,
        exchange: ExchangeOptions,
        *,
        batch_per_gpu: Floats,
        gpus: Floats,
    ) -> Floats:
        """Return the memory per GPU: framework, model, optimizer, activations, and PowerSGD's error feedback."""
        error_feedback = profile.gradient_bytes if exchange.powersgd_rank is not None else 0.0
        model = FRAMEWORK_BYTES + model_bytes(workload, profile) + error_feedback
        return model + activation_bytes(workload, profile, batch_per_gpu) + np.zeros_like(gpus)

    def gpu_seconds(
        self,
        profile: ModelProfile,
        exchange: ExchangeOptions,
        memory_bytes_per_second: Floats | None,
    ) -> Floats | None:
        """Return the mean additional GPU time per step if there is something to exchange."""
        if exchange.powersgd_rank is None or memory_bytes_per_second is None:
            return None  # a CPU's memory rate is unknown
        return powersgd_seconds(profile, memory_bytes_per_second) / exchange.accumulate

    def host_seconds(self, profile: ModelProfile, gpus_per_node: Floats) -> Floats:
        """Return the additional time that a step waits for the host."""
        return np.zeros_like(gpus_per_node)

    # the constants that it is based on

    @abstractmethod
    def overlap(self, tuning: Tuning) -> Constant:
        """Return the share of the hideable exchange that really hides behind backward."""

    @abstractmethod
    def overlap_between(self, tuning: Tuning) -> Constant:
        """Return the same share for an exchange between machines."""

    def slowdowns(self, tuning: Tuning) -> tuple[Constant, ...]:
        """Return the shares of compute that a worker loses because others run."""
        return (c.slowdown(tuning),)


class Strategies(dict[str, Strategy]):
    """Strategies by name; an unknown name raises an error with the closest match."""

    def __init__(self, *strategies: Strategy) -> None:
        super().__init__({strategy.name: strategy for strategy in strategies})

    def __missing__(self, name: str) -> Strategy:
        raise UnknownName("strategy", name, self)


@dataclass(frozen=True, eq=False)
class _ProfileKey:
    """A cache key that compares profiles by identity: comparing all layers is slower than packing them."""

    profile: ModelProfile

    def __hash__(self) -> int:
        return id(self.profile)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ProfileKey) and self.profile is other.profile


@lru_cache(maxsize=256)
def _fill_cached(key: _ProfileKey, caps: tuple[float, ...], rank: int | None) -> Buckets:
    profile = key.profile
    if rank is None:
        return _fill_buckets(profile, caps)
    return _fill_powersgd_buckets(profile, caps, rank)


# PowerSGD (Vogels et al., NeurIPS 2019) replaces an n × m matrix by two of n × r and m × r, exchanged in sequence.
# Profiles know the number of parameters of a layer, not its shape. Its matrix is assumed to be nine times as long as
# wide, like that of a 3 × 3 convolution with equal input and output channels. A square one would shrink 1.7 times as much.
_LENGTH_TO_WIDTH = 9.0
# adding the error feedback (2 reads, 1 write), two products (1 read each), reconstructing the matrix (1 write),
# computing the new error (2 reads, 1 write): counted from torch's powerSGD_hook
_GRADIENT_PASSES = 9.0
# two products, orthogonalizing the columns, reconstructing the matrix, computing the error
_KERNELS_PER_LAYER = 10.0


def _fill_buckets(
    profile: ModelProfile,
    caps: Sequence[float],
    sent_bytes: Callable[[LayerProfile], float] = lambda layer: layer.gradient_bytes,
) -> Buckets:
    """Fill buckets layer by layer in backward order and close each once it has reached its cap.

    A bucket fills by the full size of its gradients; the bytes sent may be fewer.
    """
    backward_flops = sum(layer.forward_flops for layer in profile.layers)
    sizes: list[float] = []
    ready: list[float] = []
    filled = sent = done_flops = 0.0
    for index, layer in enumerate(profile.layers):
        filled += layer.gradient_bytes
        sent += sent_bytes(layer)
        done_flops += layer.forward_flops
        last = index == len(profile.layers) - 1
        if filled > 0 and (filled >= caps[min(len(sizes), len(caps) - 1)] or last):
            sizes.append(sent)
            # without FLOP counts, assume that all layers take the same time
            ready.append(
                done_flops / backward_flops if backward_flops else (index + 1) / len(profile.layers)
            )
            filled = sent = 0.0
    return Buckets(np.array(sizes, dtype=float), np.array(ready, dtype=float))


def powersgd_bytes(layer: LayerProfile, rank: int) -> float:
    """Return the bytes of both factors in fp32; a layer that would not shrink is sent unchanged."""
    width = math.sqrt(layer.parameters / _LENGTH_TO_WIDTH)
    factors = 4.0 * rank * (width + _LENGTH_TO_WIDTH * width)
    return min(factors, float(layer.gradient_bytes))


def _fill_powersgd_buckets(profile: ModelProfile, caps: Sequence[float], rank: int) -> Buckets:
    """Return the buckets as they are sent: two for each, one per factor."""
    whole = _fill_buckets(profile, caps, lambda layer: powersgd_bytes(layer, rank))
    return Buckets(np.repeat(whole.size_bytes / 2, 2), np.repeat(whole.ready_share, 2))


def powersgd_seconds(profile: ModelProfile, memory_bytes_per_second: Floats) -> Floats:
    """Return the additional GPU time per step: passes over the gradients, and kernel launches."""
    launches = len(profile.layers) * _KERNELS_PER_LAYER * c.KERNEL_LAUNCH.value
    return _GRADIENT_PASSES * profile.gradient_bytes / memory_bytes_per_second + launches
