"""The JSON documents of `who` and `reserve`, whose keys are a public interface."""

import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from gpuyard.errors import GpuyardError
from gpuyard.share.client import Client, LocalClient
from gpuyard.share.clock import Clock, iso_timestamp
from gpuyard.share.config import ShareConfig, share_directory
from gpuyard.share.gpus import Reading, describe_gpu, gpu_source, utilization_by_gpu
from gpuyard.share.misuse import Violation
from gpuyard.share.models import (
    DRAIN,
    RESERVATION,
    WHOLE,
    ExpectedStart,
    Lease,
    Reservation,
    ShareState,
)
from gpuyard.share.schedule import WAITING


def read_gpus(client: Client) -> Mapping[int, Reading]:
    """Read the state of the GPUs, and record their utilization if this user owns the share."""
    readings = gpu_source(share_directory(), client.config).read()
    if isinstance(client, LocalClient):
        client.broker.record_utilization(utilization_by_gpu(readings))
        with contextlib.suppress(GpuyardError):  # for example, the disk is full
            client.broker.prune_history()
    return readings


def reservation_document(reservation: Reservation) -> dict[str, Any]:
    return {
        "id": reservation.id,
        "user": reservation.user,
        "count": reservation.count,
        "gpus": list(reservation.gpus),
        "from": iso_timestamp(reservation.start),
        "until": iso_timestamp(reservation.end),
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
    """Return the GPUs with their leases and readings, the queue, reservations, and violations.

    `isolated` has the IDs of leases whose processes can open only their own GPUs.
    """
    starts = {start.id: start for start in state.starts}
    expected = {(withheld.user, withheld.name): withheld.expected for withheld in state.withheld}
    return {
        "gpus": [
            {
                **describe_gpu(gpu, readings.get(gpu.index, Reading()), clock),
                "drained": any(
                    reservation.kind == DRAIN and gpu.index in reservation.gpus
                    for reservation in state.reservations
                ),
                "leases": [
                    _lease_document(lease, clock, isolated)
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
                "gpus": list(lease.requested_gpus),
                "share": lease.parts / WHOLE,
                "since": iso_timestamp(lease.requested_at),
                "elapsed_seconds": max(0.0, clock.wall() - lease.requested_at),
                "command": lease.command or None,
                **_start_document(starts.get(lease.id), clock),
            }
            for position, lease in enumerate(state.waiting, 1)
        ],
        "jobs": [
            {
                "user": announced.user,
                "job": announced.job.name,
                "min_gpus": announced.job.min_gpus,
                "max_gpus": announced.job.max_gpus,
                "since": iso_timestamp(announced.since),
                "expected": iso_timestamp(expected.get((announced.user, announced.job.name))),
                "reason": state.job_reasons.get(announced.key),
            }
            for announced in state.jobs
            if announced.job.phase == WAITING
        ],
        "withheld": [
            {
                "gpus": withheld.gpus,
                "user": withheld.user,
                "for": withheld.name,
                "needs": withheld.needs,
                "reason": withheld.reason,
                "expected": iso_timestamp(withheld.expected),
                "assumed": withheld.assumed,
            }
            for withheld in state.withheld
        ],
        "policy": config.rules.job_policy,
        "reservations": [
            reservation_document(reservation)
            for reservation in state.reservations
            if reservation.kind == RESERVATION
        ],
        "violations": [asdict(violation) for violation in violations],
        "guard": config.guard,
    }


def describe_problems(document: Mapping[str, Any]) -> list[str]:
    """Return sentences on GPUs that are broken, or in use without a lease beside the violations."""
    named = {violation["gpu"] for violation in document["violations"]}
    errors = [
        f"GPU {gpu['index']} has {gpu['memory_errors']} uncorrected memory errors; reset it or drain it"
        for gpu in document["gpus"]
        if gpu.get("memory_errors")
    ]
    busy = [
        gpu["busy"]
        for gpu in document["gpus"]
        if gpu.get("busy") and not gpu["leases"] and gpu["index"] not in named
    ]
    return errors + busy


def open_jobs_document(state: ShareState, clock: Clock) -> dict[str, Any]:
    """Return the open jobs of all users, as their runners announce them; their commands are not announced."""
    return {
        "jobs": [
            {
                "user": announced.user,
                "job": announced.job.name,
                "state": announced.job.phase,
                "gpus": announced.job.gpus or None,
                "min_gpus": announced.job.min_gpus,
                "max_gpus": announced.job.max_gpus,
                "submitted": iso_timestamp(announced.job.submitted),
                "elapsed_seconds": None
                if announced.job.started is None
                else max(0.0, clock.wall() - announced.job.started),
                "deadline": iso_timestamp(announced.job.deadline),
            }
            for announced in state.jobs
        ]
    }


def _start_document(start: ExpectedStart | None, clock: Clock) -> dict[str, Any]:
    seconds = None if start is None else start.seconds
    return {
        "expected": None if seconds is None else iso_timestamp(clock.wall() + seconds),
        "reason": (start.reason if start else "") or None,
    }


def _lease_document(lease: Lease, clock: Clock, isolated: Collection[str]) -> dict[str, Any]:
    until = None if lease.until_boot is None else clock.wall_at(lease.until_boot)
    idle = None if lease.idle_since_boot is None else clock.wall_at(lease.idle_since_boot)
    return {
        "id": lease.id,
        "user": lease.user,
        "pid": lease.pid,
        "since": iso_timestamp(lease.start),
        "until": iso_timestamp(until),
        "elapsed_seconds": max(0.0, clock.boot() - (lease.start_boot or 0.0)),
        "command": lease.command or None,
        "share": lease.parts / WHOLE,
        "project": lease.project or None,
        "isolated": lease.id in isolated,
        "idle_since": iso_timestamp(idle),
    }
