"""What `who` and `usage` tell programs: plain values, whose keys are an interface."""

from typing import Any

from gpuyard.share.broker import State
from gpuyard.share.clock import Clock, stamp
from gpuyard.share.config import ShareConfig
from gpuyard.share.lease import WHOLE, Lease


def lease_document(lease: Lease, clock: Clock) -> dict[str, Any]:
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
    }


def who_document(config: ShareConfig, state: State, clock: Clock) -> dict[str, Any]:
    """GPUs with their leases, and who waits."""
    return {
        "gpus": [
            {
                "index": gpu.index,
                "name": gpu.name,
                "memory_bytes": gpu.memory_bytes,
                "leases": [
                    lease_document(lease, clock) for lease in state.held if gpu.index in lease.gpus
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
        "violations": [],
    }


def usage_document(leases: list[Lease]) -> dict[str, Any]:
    """Every lease that there was."""
    return {
        "leases": [
            {
                "id": lease.id,
                "user": lease.user,
                "group": lease.group,
                "project": lease.project or None,
                "gpus": list(lease.gpus),
                "share": lease.parts / WHOLE,
                "start": stamp(lease.start),
                "end": stamp(lease.end),
                "ended": lease.ended,
                "command": lease.command,
            }
            for lease in leases
        ]
    }
