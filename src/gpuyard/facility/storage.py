"""What a training run asks of its storage, and which ways to build one give it."""

import math
from dataclasses import dataclass
from typing import Literal

from gpuyard.catalog.fabric import StorageOption, storage_options
from gpuyard.errors import UserMistake
from gpuyard.units import format_bytes

Limit = Literal["read", "write", "capacity"]
# weights and the two moments of Adam, 4 bytes each
CHECKPOINT_BYTES_PER_PARAMETER = 12


@dataclass(frozen=True)
class StorageRequest:
    """A run at full speed: what it reads, and what it saves how quickly."""

    samples_per_second: float  # of all GPUs together
    bytes_per_sample: float
    gpus: int
    gpus_per_node: int
    dataset_bytes: float | None = None
    checkpoint_bytes: float = 0.0
    checkpoint_seconds: float = 60.0
    checkpoint_every_seconds: float = 1800.0
    checkpoints_kept: int = 3

    def check(self) -> None:
        """Raise the sentence that says what is wrong."""
        if self.gpus < 1 or self.gpus_per_node < 1:
            raise UserMistake("storage must feed at least one GPU")
        if self.checkpoint_seconds <= 0:
            raise UserMistake(
                f"writing a checkpoint takes some time, not {self.checkpoint_seconds:g} s: give "
                "--checkpoint-time more than 0 s"
            )
        if self.checkpoint_every_seconds < self.checkpoint_seconds:
            raise UserMistake(
                f"a checkpoint that takes {self.checkpoint_seconds:g} s can't be written every "
                f"{self.checkpoint_every_seconds:g} s"
            )

    @property
    def read_bytes_per_second(self) -> float:
        return self.samples_per_second * self.bytes_per_sample

    @property
    def read_bytes_per_second_per_gpu(self) -> float:
        return self.read_bytes_per_second / self.gpus

    @property
    def write_bytes_per_second(self) -> float:
        return self.checkpoint_bytes / self.checkpoint_seconds

    @property
    def checkpoint_share(self) -> float:
        """Of the time, where training stands still while a checkpoint is written."""
        if not self.checkpoint_bytes:
            return 0.0
        return self.checkpoint_seconds / (self.checkpoint_every_seconds + self.checkpoint_seconds)

    @property
    def capacity_bytes(self) -> float:
        return (self.dataset_bytes or 0.0) + self.checkpoints_kept * self.checkpoint_bytes

    @property
    def held(self) -> str:
        """What the capacity is for."""
        many = "" if self.checkpoints_kept == 1 else "s"
        saved = f"{self.checkpoints_kept} checkpoint{many}"
        if self.dataset_bytes is None:
            return f"{saved}; the workload names no dataset, so none is counted"
        return f"the dataset of {format_bytes(self.dataset_bytes)} and {saved}"


@dataclass(frozen=True)
class StorageFit:
    """One way to build it."""

    option: StorageOption
    units: int  # that would be needed, also where there can't be so many
    enough: bool
    limit: Limit  # what sets the number of units
    read_bytes_per_second: float  # of so many units, but no more than there can be
    checkpoint_seconds: float | None  # what a checkpoint would take; None: nothing is saved
    largest_gpus: int | None  # that reads can feed; None: each machine feeds its own
    missing: str  # what is missing by how much, where it is not enough


@dataclass(frozen=True)
class StorageSizing:
    """The need and all ways, in the order of the catalog."""

    request: StorageRequest
    fits: tuple[StorageFit, ...]

    def fit(self, name: str) -> StorageFit:
        return next(fit for fit in self.fits if fit.option.id == name)

    @property
    def verdict(self) -> str:
        """The simplest way that is enough, alone and shared by all machines."""
        enough = [fit for fit in self.fits if fit.enough]
        if not enough:
            return "No storage option of the catalog is enough; the table says what is missing."
        shared = next((fit for fit in enough if fit.option.kind != "local"), None)
        sentence = f"The simplest option that is enough is {_counted(enough[0])}."
        if shared is None:
            return f"{sentence} No shared storage of the catalog is enough."
        if shared is enough[0]:
            return sentence
        return f"{sentence} Shared by all machines, it is {_counted(shared)}."


def _counted(fit: StorageFit) -> str:
    return f"{fit.units} × {fit.option.id}" if fit.units > 1 else fit.option.id


def size_storage(request: StorageRequest) -> StorageSizing:
    """Every way of the catalog against one need."""
    request.check()
    return StorageSizing(request, tuple(_fit(request, option) for option in storage_options()))


def _fit(request: StorageRequest, option: StorageOption) -> StorageFit:
    local = option.kind == "local"
    # with drives of its own a machine reads its share, and one of them saves
    nodes = math.ceil(request.gpus / request.gpus_per_node)
    used = min(request.gpus, request.gpus_per_node)
    read = request.read_bytes_per_second_per_gpu * used if local else request.read_bytes_per_second
    needs: dict[Limit, tuple[float, float]] = {
        "read": (read, option.read_bytes_per_second),
        "write": (request.write_bytes_per_second, option.write_bytes_per_second),
        "capacity": (request.capacity_bytes, option.capacity_bytes),
    }
    by_limit = {limit: math.ceil(need / one) for limit, (need, one) in needs.items()}
    limit: Limit = max(by_limit, key=lambda name: by_limit[name])
    units = max(1, by_limit[limit])
    built = min(units, option.most_units)
    have = built * (nodes if local else 1)
    return StorageFit(
        option=option,
        units=units * nodes if local else units,
        enough=units <= option.most_units,
        limit=limit,
        read_bytes_per_second=have * option.read_bytes_per_second,
        checkpoint_seconds=(
            request.checkpoint_bytes / (built * option.write_bytes_per_second)
            if request.checkpoint_bytes
            else None
        ),
        largest_gpus=_largest(request, option),
        missing="" if units <= option.most_units else _missing(needs, option),
    )


def _largest(request: StorageRequest, option: StorageOption) -> int | None:
    each = request.read_bytes_per_second_per_gpu
    if each == 0:
        return None
    fed = math.floor(option.most_units * option.read_bytes_per_second / each)
    if option.kind == "local":
        return None if fed >= request.gpus_per_node else fed
    return fed


def _missing(needs: dict[Limit, tuple[float, float]], option: StorageOption) -> str:
    words = {"read": "GB/s of reads", "write": "GB/s of writes", "capacity": "TB"}
    scale = {"read": 1e9, "write": 1e9, "capacity": 1e12}
    short = [
        f"{(need - option.most_units * one) / scale[limit]:,.3g} {words[limit]}"
        for limit, (need, one) in needs.items()
        if need > option.most_units * one
    ]
    where = " per machine" if option.kind == "local" else ""
    return f"lacks {' and '.join(short)}{where}"
