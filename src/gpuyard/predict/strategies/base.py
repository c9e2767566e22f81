"""What every strategy of data-parallel training answers; each has a file beside this one."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from gpuyard.catalog import LayerProfile, ModelProfile
from gpuyard.errors import UnknownName
from gpuyard.predict import constants as c
from gpuyard.predict.constants import Constant, Tuning
from gpuyard.predict.strategies.remedies import Proposals
from gpuyard.predict.table import Buckets, Floats, Move, StepTable
from gpuyard.specs import DEFAULT_EXCHANGE, ExchangeOptions, Workload
from gpuyard.specs.workload import GradientDtype, Optimizer

_FP32_BYTES = 4
_AUTOCAST_COPY_BYTES = 2
# A parameter, in the optimizer's own state: nothing; the momentum; two moments; the same in 8 bits, with one
# fp32 scale for 256 of each (bitsandbytes 0.50.2, `blocksize = 256`; it was 2,048 once: arXiv:2110.02861).
STATE_BYTES: dict[Optimizer, float] = {
    "sgd": 0.0,
    "momentum": 4.0,
    "adam": 8.0,
    "adamw": 8.0,
    "adam-8bit": 2 * (1 + 4 / 256),
}


def model_bytes(workload: Workload, profile: ModelProfile) -> float:
    """All that is there whatever the batch. What is frozen has neither gradient nor state; PyTorch's autocast
    keeps parameters and gradients in fp32, and a 16-bit copy of every weight until backward has used it."""
    trained = profile.gradient_bytes / _FP32_BYTES
    weight = _FP32_BYTES + (_AUTOCAST_COPY_BYTES if workload.autocast else 0)
    return weight * profile.parameters + (_FP32_BYTES + STATE_BYTES[workload.optimizer]) * trained


def activation_bytes(workload: Workload, profile: ModelProfile, batch_per_gpu: Floats) -> Floats:
    """Of a batch, when backward begins."""
    return np.asarray(batch_per_gpu * profile.sample_bytes(autocast=workload.autocast))


# Gradients are as wide as parameters, which autocast leaves in fp32. These make both as narrow as the training: apex
# at O2 casts the model (as NVIDIA's BERT, GNMT and Transformer-XL have it), DeepSpeed's communication_data_type follows
# fp16 or bf16, and tf_cnn_benchmarks casts what it sends with --use_fp16 (compact_gradient_transfer, on by default).
_AS_TRAINED = frozenset({"apex", "deepspeed", "tf-cnn-benchmarks"})


def gradient_dtype(workload: Workload) -> GradientDtype:
    """In which gradients cross the network, where a script compresses nothing."""
    if workload.gradient_dtype is not None:
        return workload.gradient_dtype
    if workload.framework in _AS_TRAINED and workload.precision in ("fp16", "bf16"):
        return workload.precision
    return "fp32"


SecondsBySize = Callable[[Floats], Floats]
_HALF = 0.5  # of fp32 gradients as fp16 or bf16


class Strategy(ABC):
    """Defaults are those of workers that each hold the whole model, and exchange the gradients of every
    step in buckets while backward goes on."""

    name: ClassVar[str]
    options: ClassVar[frozenset[str]] = frozenset()  # those of `ExchangeOptions` that it has
    no_other_option: ClassVar[str] = ""  # why it has no others, and what has
    most_machines: ClassVar[int | None] = None
    why_no_more_machines: ClassVar[str] = ""
    constants: ClassVar[tuple[Constant, ...]] = ()  # what its exchange is reckoned with
    remedies: ClassVar[tuple[Proposals, ...]] = ()  # what could be changed about its exchange
    bucket_option: ClassVar[str] = ""  # what its framework calls the size of a bucket
    hierarchical_caveat: ClassVar[str] = ""
    synchronous: ClassVar[bool] = True  # else nobody waits for the slowest
    # whether runs on one machine, which are rings, say how much of its exchange hides
    calibrated: ClassVar[bool] = False
    hides_nothing: ClassVar[str] = ""  # the words for it, where that is so
    drawn_as: ClassVar[str] = ""  # what a time line must say of it

    def refusal(self, exchange: ExchangeOptions) -> str | None:
        """The sentence that says which of these options it does not have."""
        others = exchange.chosen - self.options
        return self.no_other_option.format(", ".join(sorted(others))) if others else None

    # the exchange of gradients

    @abstractmethod
    def bucket_caps(self, cap_bytes: float | None) -> tuple[float, ...]:
        """What closes the first bucket, the second and so on; the last cap holds for all that follow.
        A cap may have been asked for."""

    def buckets(self, profile: ModelProfile, exchange: ExchangeOptions) -> Buckets:
        """How gradients are grouped, and when each group is ready."""
        caps = self.bucket_caps(exchange.bucket_bytes)
        return _filled(_Itself(profile), caps, exchange.powersgd_rank)

    def bucket_name(self, number: int) -> str:
        return f"bucket {number}"

    def sent_dtype(self, workload: Workload, exchange: ExchangeOptions) -> GradientDtype:
        """Of what crosses the network: gradients, or with local SGD parameters, which only a script narrows."""
        if exchange.half is not None:
            return exchange.half
        narrows = "compress" in self.options and exchange.local_sgd == 1
        return gradient_dtype(workload) if narrows else "fp32"

    def gradient_words(
        self, workload: Workload, exchange: ExchangeOptions = DEFAULT_EXCHANGE
    ) -> str:
        """Who says how wide gradients are that cross the network: a sentence, or nothing where they are as usual."""
        if exchange.half or exchange.local_sgd > 1:
            return ""
        sent = self.sent_dtype(workload, exchange)
        if workload.gradient_dtype is not None:
            return f"Gradients: sent as {sent}, as the workload says."
        if sent == "fp32":
            return ""
        return f"Gradients: sent as {sent}, as {workload.framework} does; 'gradient_dtype: fp32' if yours does not."

    def sent_share(self, workload: Workload, exchange: ExchangeOptions) -> float:
        """Of the buckets' bytes."""
        return 1.0 if self.sent_dtype(workload, exchange) == "fp32" else _HALF

    @abstractmethod
    def bucket_seconds(self, table: StepTable) -> SecondsBySize:
        """What the exchange of one bucket takes in every row, by its size."""

    def exchange_seconds(self, table: StepTable, compute_seconds: Floats) -> tuple[Floats, Floats]:
        """All of a step's exchange, and what would stick out behind compute if the two did not disturb
        each other.

        Buckets go one after the other, each when it is full: the last one ends behind compute by the
        largest, over i, of all exchanges from bucket i on less the backward that was left at its start.
        """
        backward = compute_seconds * table.traffic.backward_share
        remaining = np.zeros_like(compute_seconds)
        sticks_out = np.zeros_like(compute_seconds)
        seconds_of = self.bucket_seconds(table)
        seen: dict[float, Floats] = {}  # most buckets are alike
        buckets = table.traffic.buckets
        for size, ready in zip(buckets.size_bytes[::-1], buckets.ready_share[::-1], strict=True):
            if size not in seen:
                seen[size] = seconds_of(size * table.sent_share)
            remaining = remaining + seen[size]
            sticks_out = np.maximum(sticks_out, remaining - (1 - ready) * backward)
        return remaining, sticks_out

    def moves(
        self, profile: ModelProfile, gpus: int, batch_per_gpu: int, sent_bytes: float
    ) -> tuple[Move, ...]:
        """What crosses a GPU's link in one step, in the order in which it does; `sent_bytes` is what each worker has to
        send of a step in the mean."""
        del profile, gpus, batch_per_gpu, sent_bytes
        return ()

    # what it takes of a machine

    def memory_bytes(
        self,
        workload: Workload,
        profile: ModelProfile,
        exchange: ExchangeOptions,
        *,
        batch_per_gpu: Floats,
        gpus: Floats,
    ) -> Floats:
        """Of each of so many GPUs: the model with its optimizer, the activations of the batch, and the
        error that PowerSGD feeds back."""
        fed_back = profile.gradient_bytes if exchange.powersgd_rank is not None else 0.0
        model = model_bytes(workload, profile) + fed_back
        return model + activation_bytes(workload, profile, batch_per_gpu) + np.zeros_like(gpus)

    def gpu_seconds(
        self,
        profile: ModelProfile,
        exchange: ExchangeOptions,
        memory_bytes_per_second: Floats | None,
    ) -> Floats | None:
        """What a step takes longer, in the mean, on every GPU that has something to exchange."""
        if exchange.powersgd_rank is None or memory_bytes_per_second is None:
            return None  # a CPU's memory rate is not known, its passes over gradients in no formula
        return powersgd_seconds(profile, memory_bytes_per_second) / exchange.accumulate

    def host_seconds(self, profile: ModelProfile, gpus_per_node: Floats) -> Floats:
        """What a step waits for a host besides."""
        return np.zeros_like(gpus_per_node)

    # the constants that it stands on

    @abstractmethod
    def overlap(self, tuning: Tuning) -> Constant:
        """How much of the exchange that could hide behind backward really does."""

    @abstractmethod
    def overlap_between(self, tuning: Tuning) -> Constant:
        """The same, where the exchange leaves the machine."""

    def slowdowns(self, tuning: Tuning) -> tuple[Constant, ...]:
        """What a worker among others loses of its compute."""
        return (c.slowdown(tuning),)


class Strategies(dict[str, Strategy]):
    """By their names; any other name is a mistake that is told with the closest one."""

    def __init__(self, *strategies: Strategy) -> None:
        super().__init__({strategy.name: strategy for strategy in strategies})

    def __missing__(self, name: str) -> Strategy:
        raise UnknownName("strategy", name, self)


@dataclass(frozen=True, eq=False)
class _Itself:
    """A profile that equals only itself: to compare all its layers takes longer than to pack them."""

    profile: ModelProfile

    def __hash__(self) -> int:
        return id(self.profile)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and self.profile is other.profile


@lru_cache(maxsize=256)
def _filled(itself: _Itself, caps: tuple[float, ...], rank: int | None) -> Buckets:
    profile = itself.profile
    return _fill(profile, caps) if rank is None else _powersgd_buckets(profile, caps, rank)


# PowerSGD (Vogels et al., NeurIPS 2019) makes of a matrix of n × m two of n × r and m × r, exchanged one after the
# other. Profiles know how many parameters a layer has, not its shape: its matrix is taken to be nine times as long
# as wide, as a 3 × 3 convolution with as many channels in as out is. A square one would shrink 1.7 times as much.
_LENGTH_TO_WIDTH = 9.0
# error feedback added (2 reads, a write), two products (a read each), the matrix made again (a write),
# the new error (2 reads, a write): counted from torch's powerSGD_hook
_GRADIENT_PASSES = 9.0
# two products, the columns made orthogonal, the matrix made again, the error
_KERNELS_PER_LAYER = 10.0


def _fill(
    profile: ModelProfile,
    caps: Sequence[float],
    sent_bytes: Callable[[LayerProfile], float] = lambda layer: layer.gradient_bytes,
) -> Buckets:
    """Fill buckets layer by layer in backward order and close each once it has reached its cap.

    A bucket fills with gradients as they are; what is sent of each layer may be less.
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
            # a model without counted FLOPs is taken as evenly spread over its layers
            ready.append(
                done_flops / backward_flops if backward_flops else (index + 1) / len(profile.layers)
            )
            filled = sent = 0.0
    return Buckets(np.array(sizes, dtype=float), np.array(ready, dtype=float))


def powersgd_bytes(layer: LayerProfile, rank: int) -> float:
    """Both factors in fp32; a layer that would not shrink goes as it is."""
    width = math.sqrt(layer.parameters / _LENGTH_TO_WIDTH)
    factors = 4.0 * rank * (width + _LENGTH_TO_WIDTH * width)
    return min(factors, float(layer.gradient_bytes))


def _powersgd_buckets(profile: ModelProfile, caps: Sequence[float], rank: int) -> Buckets:
    """The buckets as they go over the link: each as two, one for either factor."""
    whole = _fill(profile, caps, lambda layer: powersgd_bytes(layer, rank))
    return Buckets(np.repeat(whole.size_bytes / 2, 2), np.repeat(whole.ready_share, 2))


def powersgd_seconds(profile: ModelProfile, memory_bytes_per_second: Floats) -> Floats:
    """What a step takes longer on the GPU: passes over the gradients, and launches."""
    launches = len(profile.layers) * _KERNELS_PER_LAYER * c.KERNEL_LAUNCH.value
    return _GRADIENT_PASSES * profile.gradient_bytes / memory_bytes_per_second + launches
