"""The values that leases are made of: what is asked for, and what was given."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from gpuyard.errors import GpuyardError, UserMistake

WHOLE = 1_000_000
"""Parts of a GPU: shares are counted in whole millionths, so that sums are exact."""
LONGEST_COMMAND = 500  # characters that are kept
_LONGEST_NAME = 100
_LONGEST_SECONDS = 366 * 86400.0


class NoneFree(GpuyardError):
    """`--now` or `--wait` found none; as sysexits.h's EX_TEMPFAIL, so that scripts can try again."""

    exit_status = 75


@dataclass(frozen=True)
class LeaseRequest:
    """What somebody wants to hold, and what for."""

    count: int = 1
    gpus: tuple[int, ...] = ()
    """Which, by index; empty: the best that are free."""
    parts: int = WHOLE
    """How much of each; whole GPUs are shared with nobody."""
    memory_bytes: int | None = None
    """In place of parts: how much of each GPU's memory."""
    seconds: float | None = None
    """How long at most; None: until the command ends."""
    command: str = ""
    project: str = ""
    waits: bool = True

    def __post_init__(self) -> None:
        for name in (
            "command",
            "project",
        ):  # of an argument that is not UTF-8 some characters have no place in a store
            text = getattr(self, name).encode(errors="replace").decode()
            object.__setattr__(self, name, text)
        if self.count < 1:
            raise UserMistake(f"a lease is for 1 GPU or more, got {self.count}")
        if self.gpus and (len(set(self.gpus)) != len(self.gpus) or self.count != len(self.gpus)):
            raise UserMistake(f"expected {self.count} different GPUs, got {list(self.gpus)}")
        if not 0 < self.parts <= WHOLE:
            raise UserMistake("a share of a GPU must be above 0 and at most 1")
        if self.memory_bytes is not None and self.memory_bytes <= 0:
            raise UserMistake("a lease's memory must be above zero")
        if self.seconds is not None and not 0 < self.seconds <= _LONGEST_SECONDS:
            raise UserMistake("a lease lasts more than 0 seconds and at most 366 days")
        if len(self.project) > _LONGEST_NAME:
            raise UserMistake(f"a project's name has at most {_LONGEST_NAME} characters")

    @classmethod
    def from_document(cls, document: Any) -> "LeaseRequest":
        """What came over a socket: only what is known, of the right types."""
        if not isinstance(document, dict) or document.keys() - cls.__dataclass_fields__.keys():
            raise UserMistake("this request is not one that this version of gpuyard knows")
        read = {"gpus": [], **document}
        kinds: dict[str, Any] = {
            "count": int,
            "parts": int,
            "memory_bytes": (int, type(None)),
            "seconds": (int, float, type(None)),
            "command": str,
            "project": str,
            "waits": bool,
            "gpus": list,
        }
        if any(not isinstance(value, kinds[name]) for name, value in read.items()):
            raise UserMistake("this request has a value of the wrong type")
        if any(type(index) is not int for index in read["gpus"]):
            raise UserMistake("this request has a value of the wrong type")
        return cls(**{**read, "gpus": tuple(read["gpus"])})

    def document(self) -> dict[str, Any]:
        """For the socket."""
        return asdict(self)


@dataclass(frozen=True)
class Lease:
    """Somebody's hold on some GPUs until some time; while `start` is None, a place in the queue."""

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
    wanted: tuple[int, ...]
    parts: int
    seconds: float | None
    asked: float
    gpus: tuple[int, ...]
    start: float | None
    start_boot: float | None
    until_boot: float | None
    end: float | None
    ended: str | None
    priority: int
    idle_since_boot: float | None
    utilisation_sum: float
    utilisation_samples: int

    @property
    def held(self) -> bool:
        """GPUs are given, and not given back."""
        return self.start is not None and self.ended is None

    @classmethod
    def from_row(cls, row: tuple[Any, ...]) -> "Lease":
        """A row of the table, in the order of its columns."""
        named = dict(zip(cls.__dataclass_fields__, row, strict=True))
        for listed in ("wanted", "gpus"):
            named[listed] = tuple(json.loads(named[listed]))
        return cls(**named)

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> "Lease":
        """As `asdict` writes it, after a way through JSON."""
        lists = {name: tuple(document[name]) for name in ("wanted", "gpus")}
        return cls(**{**document, **lists})


COLUMNS = ", ".join(f'"{name}"' for name in Lease.__dataclass_fields__)
"""Of the table of leases, as `from_row` reads them."""
