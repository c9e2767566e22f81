"""Waiting for a turn: asks again and again, says where in the queue it is, and leaves no place behind."""

import contextlib
import os
import time
from collections.abc import Callable

from gpuyard.errors import GpuyardError
from gpuyard.share.service.desk import Desk
from gpuyard.share.store.broker import Turn
from gpuyard.share.store.lease import Lease, NoneFree, Request

_FIRST_SECONDS, _NEXT_SECONDS, _LONGEST_SECONDS = 0.02, 0.1, 1.0


def wait_for_lease(
    desk: Desk, request: Request, wait_seconds: float | None, tell: Callable[[Turn], None]
) -> tuple[Lease, int]:
    """The lease and its lock; `NoneFree` where the time to wait is over."""
    turn, lock = desk.ask(request)
    if turn.lease.held:
        return turn.lease, lock
    deadline = None if wait_seconds is None else time.monotonic() + wait_seconds
    told = None
    pause = _FIRST_SECONDS
    try:
        while not turn.lease.held:
            if turn.position != told:
                told = turn.position
                tell(turn)
            if deadline is not None:
                if time.monotonic() >= deadline:
                    raise NoneFree(
                        f"no {request.count} GPUs could be had in that time; `gpuyard who` shows who "
                        "holds them"
                    )
                pause = min(pause, max(0.01, deadline - time.monotonic()))
            time.sleep(pause)
            # whoever is next looks often, those behind them seldom
            pause = min(_NEXT_SECONDS * max(1, turn.position), _LONGEST_SECONDS)
            turn = desk.claim(turn.lease.id)
    except BaseException:
        with contextlib.suppress(GpuyardError, OSError):
            desk.leave(turn.lease.id)
        os.close(lock)
        raise
    return turn.lease, lock
