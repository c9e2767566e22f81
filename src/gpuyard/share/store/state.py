"""How a share stands: who holds what, who waits, and where one request is among them."""

from dataclasses import dataclass

from gpuyard.share.store.lease import Lease
from gpuyard.share.turns.calendar import Reservation


@dataclass(frozen=True)
class State:
    """What is held and who waits, in the order of their turns."""

    held: tuple[Lease, ...]
    waiting: tuple[Lease, ...]
    reservations: tuple[Reservation, ...] = ()
    """Those that are not over, and drains."""


@dataclass(frozen=True)
class Turn:
    """How far a request is: held, or its place in the queue (1: next) and when it is expected to start."""

    lease: Lease
    position: int = 0
    expected_seconds: float | None = None
    reason: str = ""
    """What it waits for, where that is not a GPU."""
