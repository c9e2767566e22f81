"""The plan of a collectives bench: the operations and sizes to time, and where."""

import importlib.util
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast, get_args

import psutil

from gpuyard import units
from gpuyard.choices import Backend, Collective
from gpuyard.errors import MissingRequirement, UnknownName, UserMistake
from gpuyard.measure.collectives.tables import describe_place
from gpuyard.measure.record import Testbed, discover_testbed, hash_key
from gpuyard.run.places import Place
from gpuyard.run.protocol import RankDevice
from gpuyard.table import Table
from gpuyard.workloads.resolve import require_torch

OPERATIONS: tuple[Collective, ...] = get_args(Collective)
BACKENDS: tuple[Backend, ...] = get_args(Backend)
MAX_REPEATS = 1000
_MAX_SIZES = 64
_BUFFERS = 3  # the whole, a part, and the backend's own
_RANGE = re.compile(r"^(.+?)\.\.(.+)$")


@dataclass(frozen=True)
class CollectivesPlan:
    """The operations and sizes to time, one after another."""

    place: Place
    workers: int
    backend: Backend
    device: RankDevice
    operations: tuple[Collective, ...]
    sizes: tuple[int, ...]
    repeats: int
    seconds_per_size: float
    cores_by_worker: tuple[tuple[int, ...], ...]
    link_bytes_per_second: float | None
    testbed: Testbed
    key: str

    def describe(self) -> dict[str, Any]:
        return {
            "place": self.place.record(self.workers).model_dump(mode="json"),
            "workers": self.workers,
            "backend": self.backend,
            "device": self.device,
            "operations": list(self.operations),
            "sizes": list(self.sizes),
            "repeats": self.repeats,
            "seconds_per_size": self.seconds_per_size,
            "cores_by_worker": [list(cores) for cores in self.cores_by_worker],
            "link_bytes_per_second": self.link_bytes_per_second,
            "host": self.testbed.model_dump(mode="json"),
            "key": self.key,
        }

    def build_table(self) -> Table:
        place = describe_place(self.place.record(self.workers))
        return Table(
            f"{self.workers} ranks {place}, {self.backend} on {self.device}, {self.repeats} repeats",
            ["operation", "bytes", ""],
            [
                [operation, units.format_bytes(size), "would be measured"]
                for operation, size in self.exchanges
            ],
        )

    @property
    def exchanges(self) -> list[tuple[Collective, int]]:
        """All pairs of operation and size, in the order of timing."""
        return [(operation, size) for operation in self.operations for size in self.sizes]

    @property
    def used_cores(self) -> list[int]:
        return [core for cores in self.cores_by_worker for core in cores]


def plan_collectives(
    place: Place,
    workers: int,
    operations: Sequence[str],
    sizes: Sequence[int],
    *,
    backend: str | None = None,
    link_bytes_per_second: float | None = None,
    repeats: int = 5,
    seconds_per_size: float = 2.0,
) -> CollectivesPlan:
    """Plan a collectives bench, and check everything that can be checked before a process starts."""
    require_torch()
    for operation in operations:
        if operation not in OPERATIONS:
            raise UnknownName("operation", operation, OPERATIONS)
    if workers < 2:
        raise UserMistake("a collective needs 2 workers or more")
    if not 1 <= repeats <= MAX_REPEATS:
        raise UserMistake(f"expected 1 to {MAX_REPEATS} repeats, got {repeats}")
    chosen = _choose_backend(backend, place, workers)
    device: RankDevice = "cuda" if chosen == "nccl" else "cpu"
    divisible = tuple(dict.fromkeys(max(1, size // (4 * workers)) * 4 * workers for size in sizes))
    _check_memory(place, workers, max(divisible))
    plan = CollectivesPlan(
        place=place,
        workers=workers,
        backend=chosen,
        device=device,
        operations=tuple(dict.fromkeys(cast("Sequence[Collective]", operations))),
        sizes=divisible,
        repeats=repeats,
        seconds_per_size=seconds_per_size,
        cores_by_worker=place.cores_by_worker(workers, computing=False),
        link_bytes_per_second=place.ring_link_bytes_per_second(workers) or link_bytes_per_second,
        testbed=discover_testbed(),
        key="",
    )
    return replace(plan, key=_hash_parameters(plan))


def parse_sizes(text: str, factor: int = 4) -> list[int]:
    """Parse "1KB..1MB" as 1 kB, 4 kB, 16 kB, … up to 1 MB, and "1MB,10MB" as these two sizes."""
    if factor < 2:
        raise UserMistake(f"expected a factor of 2 or more, got {factor}")
    match = _RANGE.match(text)
    if match is None:
        sizes = [_parse_size(part) for part in text.split(",")]
    else:
        size, last = _parse_size(match[1]), _parse_size(match[2])
        if size > last:
            raise UserMistake(
                f"the first size of {text!r} must not be larger than the last, e.g. 1KB..1GB"
            )
        sizes = []
        while size < last:
            sizes.append(size)
            size *= factor
        sizes.append(last)
    if len(sizes) > _MAX_SIZES:
        raise UserMistake(f"expected {_MAX_SIZES} sizes or fewer, got {len(sizes)}")
    return sizes


def _parse_size(text: str) -> int:
    return int(units.parse_positive(text.strip(), units.SIZE))


def _choose_backend(name: str | None, place: Place, workers: int) -> Backend:
    if name is None:
        return "gloo" if place.missing_gpus(workers) else "nccl"
    if name not in BACKENDS:
        raise UnknownName("backend", name, BACKENDS)
    if name == "nccl" and (missing := place.missing_gpus(workers)) is not None:
        raise MissingRequirement(
            f"NCCL needs a GPU for each worker: {missing}; use --backend gloo without GPUs"
        )
    if name == "mpi":
        check_mpi(place)
    return name


def _check_memory(place: Place, workers: int, largest: int) -> None:
    if not place.on_this_machine:
        return
    available = psutil.virtual_memory().available
    max_bytes = available // (_BUFFERS * workers)
    if largest > max_bytes:
        raise UserMistake(
            f"{workers} workers with {units.format_bytes(largest)} each need more than the free "
            f"memory; use sizes up to {units.format_bytes(max_bytes)}"
        )


def _hash_parameters(plan: CollectivesPlan) -> str:
    document = plan.describe()
    return hash_key(
        {
            **{k: v for k, v in document.items() if k not in ("host", "key", "place")},
            "place": plan.place.identity(),
            "host": plan.testbed.fingerprint(),
            "torch": plan.testbed.torch,
            "gpuyard": plan.testbed.gpuyard,
        }
    )


def check_mpi(place: Place) -> None:
    """Raise if MPI cannot be used, with what is missing."""
    if place.rendezvous_point is not None:  # mpiexec starts ranks on this machine
        raise UserMistake("MPI runs on this machine only; leave out --lab, --hosts, and --slurm")
    if importlib.util.find_spec("mpi4py") is None or find_mpiexec() is None:
        raise MissingRequirement(
            "MPI needs mpi4py and an MPI with mpiexec: pip install mpi4py mpich; or use --backend gloo"
        )


def find_mpiexec() -> str | None:
    # the mpich wheel installs it next to the Python interpreter
    return shutil.which("mpiexec") or shutil.which("mpiexec", path=Path(sys.executable).parent)
