"""Waiting for a turn: asks again and again, says where in the queue it is, and leaves no place behind."""

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import replace

from gpuyard.errors import GpuyardError, NoAnswer
from gpuyard.share.service.desk import Desk
from gpuyard.share.store.lease import Lease, LeaseRequest, NoneFree
from gpuyard.share.turns.queue import Turn

_FIRST_SECONDS, _NEXT_SECONDS, _LONGEST_SECONDS = 0.02, 0.1, 1.0


def wait_for_lease(
    desk: Desk, request: LeaseRequest, wait_seconds: float | None, tell: Callable[[Turn], None]
) -> tuple[Lease, int]:
    """The lease and its lock; `NoneFree` where the time to wait is over."""
    turn, lock = desk.ask(request)
    if turn.lease.held:
        return turn.lease, lock
    deadline = None if wait_seconds is None else time.monotonic() + wait_seconds
    told: tuple[int, bool] | None = None
    pause = _FIRST_SECONDS
    silent = ""
    try:
        while not turn.lease.held:
            if told != (turn.position, bool(silent)):
                told = turn.position, bool(silent)
                tell(replace(turn, expected_seconds=None, reason=silent) if silent else turn)
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
            try:
                turn, silent = desk.claim(turn.lease.id), ""
            except NoAnswer as error:  # the store has the place, and whoever has its lock keeps it
                silent, pause = str(error), _LONGEST_SECONDS
    except BaseException:
        with contextlib.suppress(GpuyardError, OSError):
            desk.leave(turn.lease.id)
        os.close(lock)
        raise
    return turn.lease, lock
