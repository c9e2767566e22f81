"""Size the storage for a training run, and compare the storage options in the catalog."""

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
    """The needs of a run at full speed: its reads, its checkpoints, and its dataset."""

    samples_per_second: float  # all GPUs together
    bytes_per_sample: float
    gpus: int
    gpus_per_node: int
    dataset_bytes: float | None = None
    checkpoint_bytes: float = 0.0
    checkpoint_seconds: float = 60.0
    checkpoint_every_seconds: float = 1800.0
    checkpoints_kept: int = 3

    def check(self) -> None:
        """Raise UserMistake if the request contradicts itself."""
        if self.gpus < 1 or self.gpus_per_node < 1:
            raise UserMistake("storage must feed at least one GPU")
        if self.checkpoint_seconds <= 0:
            raise UserMistake(
                f"the time to write a checkpoint must be positive, not {self.checkpoint_seconds:g} s; "
                "set --checkpoint-time to more than 0 s"
            )
        if self.checkpoint_every_seconds < self.checkpoint_seconds:
            raise UserMistake(
                f"a checkpoint that takes {self.checkpoint_seconds:g} s cannot be written every "
                f"{self.checkpoint_every_seconds:g} s; set --checkpoint-every to more than --checkpoint-time"
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
        """The share of time spent on checkpoints, if training pauses while one is written."""
        if not self.checkpoint_bytes:
            return 0.0
        return self.checkpoint_seconds / (self.checkpoint_every_seconds + self.checkpoint_seconds)

    @property
    def capacity_bytes(self) -> float:
        return (self.dataset_bytes or 0.0) + self.checkpoints_kept * self.checkpoint_bytes

    @property
    def capacity_purpose(self) -> str:
        """A phrase that says what the capacity is for."""
        plural = "" if self.checkpoints_kept == 1 else "s"
        checkpoints = f"{self.checkpoints_kept} checkpoint{plural}"
        if self.dataset_bytes is None:
            return f"{checkpoints}; the workload has no dataset size, so no dataset is counted"
        return f"the dataset of {format_bytes(self.dataset_bytes)} and {checkpoints}"


@dataclass(frozen=True)
class StorageFit:
    """One storage option, compared with the request."""

    option: StorageOption
    units: int  # units needed, even if the option does not allow that many
    enough: bool
    limit: Limit  # the need that sets the number of units
    read_bytes_per_second: float  # of the units needed, up to the maximum
    checkpoint_seconds: float | None  # time to write a checkpoint; None without checkpoints
    largest_gpus: int | None  # GPUs that its reads can feed; None: each machine feeds its own GPUs
    missing: str  # what is missing and by how much, if the option is not enough


@dataclass(frozen=True)
class StorageSizing:
    """The request and all options, in catalog order."""

    request: StorageRequest
    fits: tuple[StorageFit, ...]

    def find_fit(self, name: str) -> StorageFit:
        return next(fit for fit in self.fits if fit.option.id == name)

    @property
    def verdict(self) -> str:
        """A sentence that names the simplest sufficient option, and the simplest shared one."""
        enough = [fit for fit in self.fits if fit.enough]
        if not enough:
            return "No storage option in the catalog is enough; the table shows what is missing."
        shared = next((fit for fit in enough if fit.option.kind != "local"), None)
        sentence = f"The simplest option that is enough is {_format_option(enough[0])}."
        if shared is None:
            return f"{sentence} No shared storage in the catalog is enough."
        if shared is enough[0]:
            return sentence
        return f"{sentence} The simplest shared option is {_format_option(shared)}."


def _format_option(fit: StorageFit) -> str:
    return f"{fit.units} × {fit.option.id}" if fit.units > 1 else fit.option.id


def size_storage(request: StorageRequest) -> StorageSizing:
    """Compare every storage option in the catalog with the request."""
    request.check()
    return StorageSizing(request, tuple(_compare(request, option) for option in storage_options()))


def _compare(request: StorageRequest, option: StorageOption) -> StorageFit:
    local = option.kind == "local"
    # with local drives, each machine reads its own share, and one machine writes the checkpoint
    nodes = math.ceil(request.gpus / request.gpus_per_node)
    gpus_on_node = min(request.gpus, request.gpus_per_node)
    read = request.read_bytes_per_second
    if local:
        read = request.read_bytes_per_second_per_gpu * gpus_on_node
    needs: dict[Limit, tuple[float, float]] = {
        "read": (read, option.read_bytes_per_second),
        "write": (request.write_bytes_per_second, option.write_bytes_per_second),
        "capacity": (request.capacity_bytes, option.capacity_bytes),
    }
    by_limit = {limit: math.ceil(need / per_unit) for limit, (need, per_unit) in needs.items()}
    limit: Limit = max(by_limit, key=lambda name: by_limit[name])
    units = max(1, by_limit[limit])
    built = min(units, option.max_units)
    total_units = built * (nodes if local else 1)
    return StorageFit(
        option=option,
        units=units * nodes if local else units,
        enough=units <= option.max_units,
        limit=limit,
        read_bytes_per_second=total_units * option.read_bytes_per_second,
        checkpoint_seconds=(
            request.checkpoint_bytes / (built * option.write_bytes_per_second)
            if request.checkpoint_bytes
            else None
        ),
        largest_gpus=_count_fed_gpus(request, option),
        missing="" if units <= option.max_units else _describe_missing(needs, option),
    )


def _count_fed_gpus(request: StorageRequest, option: StorageOption) -> int | None:
    per_gpu = request.read_bytes_per_second_per_gpu
    if per_gpu == 0:
        return None
    fed = math.floor(option.max_units * option.read_bytes_per_second / per_gpu)
    if option.kind == "local":
        return None if fed >= request.gpus_per_node else fed
    return fed


def _describe_missing(needs: dict[Limit, tuple[float, float]], option: StorageOption) -> str:
    units = {"read": "GB/s of reads", "write": "GB/s of writes", "capacity": "TB"}
    scale = {"read": 1e9, "write": 1e9, "capacity": 1e12}
    shortfalls = [
        f"{(need - option.max_units * per_unit) / scale[limit]:,.3g} {units[limit]}"
        for limit, (need, per_unit) in needs.items()
        if need > option.max_units * per_unit
    ]
    where = " per machine" if option.kind == "local" else ""
    return f"lacks {' and '.join(shortfalls)}{where}"
