"""The values that clients, the service, and the broker exchange: requests, leases, reservations, and queue status."""

import contextlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Self, TypeVar, get_args, get_type_hints

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.share.schedule import AnnouncedJob, Withheld

WHOLE = 1_000_000
"""Parts of a GPU. Shares are counted in whole millionths, so that sums are exact."""
MIN_PARTS = WHOLE // 100
"""Smallest share. A share keeps others from leasing the whole GPU, so it must not be next to nothing."""
MAX_COMMAND_CHARACTERS = 500
_MAX_PROJECT_CHARACTERS = 100
_MAX_ID_CHARACTERS = 100
_MAX_GPUS = 1024
_MAX_NUMBER = 2**62  # fits into the store, also after a sum
_MAX_PID = 2**22  # PID_MAX_LIMIT of Linux
_MAX_SECONDS = 366 * 86400.0
_LATEST_TIME = 32_503_680_000.0  # the year 3000
RESERVATION, DRAIN = "reservation", "drain"
LIST_FIELDS = ("requested_gpus", "gpus")
"""Fields of leases and reservations that the store keeps as JSON lists."""

Rates = Mapping[int, float]
"""All-reduce bytes per second by set of GPUs (bit mask of their indices); empty if the topology is unknown."""
DeviceNumber = tuple[int, int]
"""Major and minor number of a character device."""
T = TypeVar("T")


class NoneFree(GpuyardError):
    """Raised if `--now` or `--wait` finds no GPUs. Exits with EX_TEMPFAIL of sysexits.h, so that scripts can retry."""

    exit_status = 75


class WrongValue(UserMistake):
    """Raised for a value in a request that has the wrong type or is out of bounds; the text says what is expected."""


@dataclass(frozen=True)
class LeaseRequest:
    """The GPUs that a user requests, and for which command."""

    count: int = 1
    gpus: tuple[int, ...] = ()
    """Indices of the GPUs; empty: the best free ones."""
    parts: int = WHOLE
    """Share of each GPU. A whole GPU has one user only."""
    memory_bytes: int | None = None
    """Memory of each GPU, instead of `parts`."""
    seconds: float | None = None
    """Time limit; None: until the command ends."""
    command: str = ""
    project: str = ""
    waits: bool = True
    even_if_busy: bool = False
    """Accept GPUs that somebody uses without a lease, if there are no others."""
    job: str = ""
    """ID of the announced job that will run on it; empty: none."""

    def __post_init__(self) -> None:
        for name in (
            "command",
            "project",
        ):  # SQLite cannot store the surrogates of non-UTF-8 arguments
            text = getattr(self, name).encode(errors="replace").decode()
            object.__setattr__(self, name, text)
        _check_gpus("lease", self.count, self.gpus)
        if not MIN_PARTS <= self.parts <= WHOLE:
            raise UserMistake(
                f"a share of a GPU must be from {MIN_PARTS / WHOLE} to 1, got {self.parts / WHOLE:g}"
            )
        if self.memory_bytes is not None and self.memory_bytes <= 0:
            raise UserMistake("the memory of a lease must be above zero")
        if self.seconds is not None and not 0 < self.seconds <= _MAX_SECONDS:
            raise UserMistake("a lease must last more than 0 seconds and at most 366 days")
        if len(self.project) > _MAX_PROJECT_CHARACTERS:
            raise UserMistake(
                f"a project name must have at most {_MAX_PROJECT_CHARACTERS} characters"
            )
        if len(self.job) > _MAX_PROJECT_CHARACTERS:
            raise UserMistake(f"a job ID must have at most {_MAX_PROJECT_CHARACTERS} characters")

    def required_parts(self, memory_sizes: Sequence[int | None]) -> int | None:
        """Return the parts of each GPU that this needs; None if it asks for memory and the GPUs' sizes are unknown.

        Memory is converted by the smallest GPU.
        """
        if self.memory_bytes is None:
            return self.parts
        sizes = [size for size in memory_sizes if size]
        if not sizes or len(sizes) < len(memory_sizes):
            return None
        return max(MIN_PARTS, -(-self.memory_bytes * WHOLE // min(sizes)))

    @classmethod
    def from_document(cls, document: Any) -> "LeaseRequest":
        return decode_request(cls, document)


@dataclass(frozen=True)
class ReservationRequest:
    """The GPUs that a user wants to reserve; times in seconds since 1970."""

    count: int
    start: float
    end: float
    gpus: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        _check_gpus("reservation", self.count, self.gpus)
        if not 0 < self.end - self.start <= _MAX_SECONDS:
            raise UserMistake("a reservation must last more than 0 seconds and at most 366 days")

    @classmethod
    def from_document(cls, document: Any) -> "ReservationRequest":
        return decode_request(cls, document)


def _check_gpus(kind: str, count: int, gpus: tuple[int, ...]) -> None:
    if count < 1:
        raise UserMistake(f"a {kind} must be for 1 GPU or more, got {count}")
    if gpus and (len(set(gpus)) != len(gpus) or count != len(gpus)):
        raise UserMistake(f"expected {count} different GPUs, got {list(gpus)}")


class _Record:
    """The base of dataclasses that are rows of the store and JSON objects on the socket."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @classmethod
    def from_row(cls, row: tuple[Any, ...]) -> Self:
        """Build a record from a row of its table, in the order of the columns."""
        document = dict(zip(cls.__dataclass_fields__, row, strict=True))
        return cls.from_document(
            document | {name: _parse_indices(document[name]) for name in LIST_FIELDS}
        )

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Build a record from the JSON of its `asdict`."""
        return cls(**{**document, **{name: tuple(document[name]) for name in LIST_FIELDS}})


def _parse_indices(text: str) -> tuple[int, ...]:
    """Parse a list of the store; a malformed one names no GPUs, so that its row can still be shown and removed."""
    with contextlib.suppress(ValueError, RecursionError, UserMistake):
        return decode_indices(json.loads(text))
    return ()


@dataclass(frozen=True)
class Lease(_Record):
    """A user's hold on GPUs. While `start` is None, it is a place in the queue."""

    number: int
    id: str
    uid: int
    user: str
    group: str
    pid: int
    process_start: int
    boot_id: str
    command: str
    project: str
    count: int
    requested_gpus: tuple[int, ...]
    parts: int
    seconds: float | None
    requested_at: float
    gpus: tuple[int, ...]
    start: float | None
    start_boot: float | None
    until_boot: float | None
    end: float | None
    end_reason: str | None
    priority: int
    idle_since_boot: float | None
    utilization_sum: float
    utilization_samples: int
    even_if_busy: bool = False
    job: str = ""
    """ID of the announced job that it is for."""

    @property
    def held(self) -> bool:
        """Return whether the lease has GPUs and has not ended."""
        return self.start is not None and self.end_reason is None


@dataclass(frozen=True)
class Reservation(_Record):
    """GPUs that are kept for one user for a time, in seconds since 1970. A drain keeps them from everyone."""

    number: int
    id: str
    kind: str
    uid: int
    user: str
    count: int
    requested_gpus: tuple[int, ...]
    """GPUs that the user named. If there are none, `gpus` may be exchanged for others until the start."""
    gpus: tuple[int, ...]
    start: float
    end: float | None
    """None, only for a drain: until an admin resumes leasing."""

    @property
    def end_or_infinity(self) -> float:
        return math.inf if self.end is None else self.end

    def overlaps(self, start: float, end: float) -> bool:
        """Return whether the times overlap. A reservation may start when another ends."""
        return self.start < end and start < self.end_or_infinity


@dataclass(frozen=True)
class ExpectedStart:
    """When a request that waits will start, and what it waits for if that is not another lease."""

    id: str
    seconds: float | None
    """None: unknown, because a lease before it has no time limit."""
    reason: str


@dataclass(frozen=True)
class ShareState:
    """The current leases, the queue in the order in which it is served, and reservations that are not over."""

    held: tuple[Lease, ...]
    waiting: tuple[Lease, ...]
    reservations: tuple[Reservation, ...] = ()
    """Includes drains."""
    jobs: tuple[AnnouncedJob, ...] = ()
    """Open jobs of all users, as their runners announce them."""
    withheld: tuple[Withheld, ...] = ()
    starts: tuple[ExpectedStart, ...] = ()
    """Expected starts of the first requests in the queue."""
    job_reasons: Mapping[str, str] = field(default_factory=dict)
    """Why jobs wait, by their key."""

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "ShareState":
        return cls(
            tuple(map(Lease.from_document, document["held"])),
            tuple(map(Lease.from_document, document["waiting"])),
            tuple(map(Reservation.from_document, document["reservations"])),
            tuple(map(AnnouncedJob.from_document, document["jobs"])),
            tuple(Withheld(**withheld) for withheld in document["withheld"]),
            tuple(ExpectedStart(**start) for start in document["starts"]),
            document["job_reasons"],
        )


@dataclass(frozen=True)
class QueueStatus:
    """The progress of a request: a held lease, or its position in the queue and its expected start."""

    lease: Lease
    position: int = 0
    """1 is next in line."""
    expected_seconds: float | None = None
    reason: str = ""
    """The reason for waiting if it is not another lease; of a held lease, the use of its GPUs by others."""

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "QueueStatus":
        return cls(
            Lease.from_document(document["lease"]),
            document["position"],
            document["expected_seconds"],
            document["reason"],
        )


def decode_request(cls: type[T], document: Any) -> T:
    """Build a dataclass from JSON that another user sent; refuse unknown fields and values of the wrong type."""
    hints = get_type_hints(cls)
    if not isinstance(document, dict) or document.keys() - hints.keys():
        raise UserMistake("this version of gpuyard does not know this request")
    decoders = {name: partial(_decode_value, hint) for name, hint in hints.items()}
    values = decode_values({name: decoders[name] for name in document}, document)
    try:
        return cls(**values)
    except TypeError:
        raise UserMistake("this request lacks a required field") from None


def decode_values(
    decoders: Mapping[str, Callable[[Any], Any]], document: Mapping[str, Any]
) -> dict[str, Any]:
    """Decode values that another user sent; an error names the key."""
    values = {}
    for name, decode in decoders.items():
        try:
            values[name] = decode(document.get(name))
        except WrongValue as error:
            raise UserMistake(f"{name!r} of this request must be {error}") from None
    return values


def _decode_value(hint: Any, value: Any) -> Any:
    if hint == tuple[int, ...]:
        return decode_indices(value)
    types = get_args(hint) or (hint,)
    if value is None and type(None) in types:
        return None
    if float in types:
        return decode_time(value)
    if int in types:
        return decode_number(value)
    if type(value) not in types:
        raise WrongValue(" or ".join(kind.__name__ for kind in types))
    return value


def decode_indices(value: Any) -> tuple[int, ...]:
    """Decode GPU indices that another user sent."""
    if not isinstance(value, list | tuple) or len(value) > _MAX_GPUS:
        raise WrongValue(f"a list of at most {_MAX_GPUS} GPUs")
    return tuple(map(decode_number, value))


def decode_time(value: Any) -> float:
    """Decode a time that another user sent."""
    if type(value) not in (int, float) or not 0 <= value < _LATEST_TIME:
        raise WrongValue("a number of seconds from 0 to the year 3000")
    return float(value)


def decode_optional_time(value: Any) -> float | None:
    return None if value is None else decode_time(value)


def decode_id(value: Any) -> str:
    """Decode the ID of a lease or reservation that another user sent."""
    if not isinstance(value, str) or len(value) > _MAX_ID_CHARACTERS:
        raise WrongValue(f"text of at most {_MAX_ID_CHARACTERS} characters")
    return value


def decode_number(value: Any) -> int:
    """Decode a count that another user sent."""
    if type(value) is not int or not 0 <= value < _MAX_NUMBER:
        raise WrongValue(f"a whole number from 0 to {_MAX_NUMBER}")
    return value


def decode_pid(value: Any) -> int:
    """Decode a process ID that another user sent."""
    if type(value) is not int or not 0 < value <= _MAX_PID:
        raise WrongValue(f"a process ID from 1 to {_MAX_PID}")
    return value


def decode_flag(value: Any) -> bool:
    """Decode a yes or no that another user sent."""
    if type(value) is not bool:
        raise WrongValue("true or false")
    return value
