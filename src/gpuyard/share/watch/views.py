"""What `who` tells programs: plain values, whose keys are an interface."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from gpuyard.share.store.clock import Clock, stamp
from gpuyard.share.store.config import ShareConfig
from gpuyard.share.store.lease import WHOLE, Lease
from gpuyard.share.turns.calendar import DRAIN, RESERVATION, Reservation
from gpuyard.share.turns.queue import ShareState
from gpuyard.share.watch.gpus import Reading
from gpuyard.share.watch.violations import Violation


def lease_document(lease: Lease, clock: Clock, isolated: Collection[str] = ()) -> dict[str, Any]:
    """One that is held."""
    until = None if lease.until_boot is None else clock.wall_at(lease.until_boot)
    return {
        "id": lease.id,
        "user": lease.user,
        "pid": lease.pid,
        "since": stamp(lease.start),
        "until": stamp(until),
        "command": lease.command,
        "share": lease.parts / WHOLE,
        "project": lease.project or None,
        "isolated": lease.id in isolated,
    }


def reservation_document(one: Reservation) -> dict[str, Any]:
    """One that is not over."""
    return {
        "id": one.id,
        "user": one.user,
        "count": one.count,
        "gpus": list(one.gpus),
        "from": stamp(one.start),
        "until": stamp(one.end),
    }


def who_document(
    config: ShareConfig,
    state: ShareState,
    clock: Clock,
    readings: Mapping[int, Reading],
    violations: Sequence[Violation] = (),
    *,
    isolated: Collection[str] = (),
) -> dict[str, Any]:
    """GPUs with their leases, how busy they are, who waits, and who breaks the rules."""
    return {
        "gpus": [
            {
                "index": gpu.index,
                "name": gpu.name,
                "memory_bytes": gpu.memory_bytes,
                **asdict(readings.get(gpu.index, Reading())),
                "drained": any(
                    one.kind == DRAIN and gpu.index in one.gpus for one in state.reservations
                ),
                "leases": [
                    lease_document(lease, clock, isolated)
                    for lease in state.held
                    if gpu.index in lease.gpus
                ],
            }
            for gpu in config.gpus
        ],
        "queue": [
            {
                "position": position,
                "id": lease.id,
                "user": lease.user,
                "pid": lease.pid,
                "count": lease.count,
                "gpus": list(lease.wanted),
                "share": lease.parts / WHOLE,
                "since": stamp(lease.asked),
                "command": lease.command,
            }
            for position, lease in enumerate(state.waiting, 1)
        ],
        "reservations": [
            reservation_document(one) for one in state.reservations if one.kind == RESERVATION
        ],
        "violations": [asdict(violation) for violation in violations],
        "guard": config.guard,
    }
