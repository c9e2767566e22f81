"""What every strategy of data-parallel training answers; each has a file beside this one."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from gpuyard.catalog import ModelProfile
from gpuyard.predict import constants as c
from gpuyard.predict.constants import Constant, Tuning
from gpuyard.predict.strategies.buckets import Buckets, fill, powersgd_buckets, powersgd_seconds
from gpuyard.predict.strategies.remedies import Proposals
from gpuyard.predict.table import Floats, Move, Table
from gpuyard.specs import ExchangeOptions, Workload
from gpuyard.specs.workload import Optimizer

_FP32_BYTES = 4
_AUTOCAST_COPY_BYTES = 2
# A parameter, in the optimizer's own state: nothing; the momentum; two moments; the same in 8 bits, with one
# fp32 scale for 256 of each (bitsandbytes, block-wise quantization: arXiv:2110.02861).
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

    def sent_share(self, exchange: ExchangeOptions) -> float:
        """Of the buckets' bytes."""
        return _HALF if exchange.half else 1.0

    @abstractmethod
    def bucket_seconds(self, table: Table) -> SecondsBySize:
        """What the exchange of one bucket takes in every row, by its size."""

    def exchange_seconds(self, table: Table, compute_seconds: Floats) -> tuple[Floats, Floats]:
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

    def moves(self, profile: ModelProfile, gpus: int, batch_per_gpu: int) -> tuple[Move, ...]:
        """What crosses a GPU's link in one step, in the order in which it does."""
        del profile, gpus, batch_per_gpu
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
    return fill(profile, caps) if rank is None else powersgd_buckets(profile, caps, rank)
