"""Violations of leases: processes without a lease or on other users' GPUs, and idle leases.

If the admin asks for it, gpuyard warns users on their terminals, and after a grace period it stops the process or
releases the idle lease.
"""

import contextlib
import json
import os
import select
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpuyard.errors import GpuyardError
from gpuyard.files import write_text
from gpuyard.printable import make_printable
from gpuyard.share import processes
from gpuyard.share.client import Client
from gpuyard.share.clock import Clock
from gpuyard.share.gpus import Reading
from gpuyard.share.misuse import Violation, check_process
from gpuyard.share.models import Lease

IDLE = "idle"
_IDLE_SECONDS = 3600.0
_FIRST_SEEN_FILE = "violations.json"
_PSEUDO_TERMINALS = 136  # the first of eight major numbers of /dev/pts, with 256 minor numbers each


def find_violations(
    held: Sequence[Lease],
    readings: Mapping[int, Reading],
    now_boot: float,
    idle_seconds: float = _IDLE_SECONDS,
) -> list[Violation]:
    """Find processes that use GPUs without a lease, and leases that have been idle for `idle_seconds`."""
    misuse = [
        violation
        for gpu, reading in sorted(readings.items())
        for pid in reading.pids
        if (violation := check_process(gpu, pid, held)) is not None
    ]
    idle = [
        _idle_violation(lease, now_boot - lease.idle_since_boot)
        for lease in held
        if lease.idle_since_boot is not None and now_boot - lease.idle_since_boot >= idle_seconds
    ]
    return misuse + idle


def _idle_violation(lease: Lease, seconds: float) -> Violation:
    sentence = f"lease {lease.id} of {lease.user} has been idle for {seconds / 3600:.1f} h"
    return Violation(IDLE, None, lease.user, lease.pid, lease.process_start, lease.id, sentence)


def warn_users(violations: Sequence[Violation]) -> list[Violation]:
    """Write to the terminal of each process that has one; return the violations whose users were warned."""
    warned = []
    for violation in violations:
        terminal = _find_terminal(violation.pid)
        if terminal is None:
            continue
        with contextlib.suppress(OSError):
            handle = os.open(terminal, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
            try:
                os.write(handle, f"\r\ngpuyard: {make_printable(violation.sentence)}\r\n".encode())
                warned.append(violation)
            finally:
                os.close(handle)
    return warned


def stop_violations(
    client: Client,
    directory: Path,
    violations: Sequence[Violation],
    after_seconds: float,
    clock: Clock,
) -> list[Violation]:
    """Stop processes and release idle leases whose violation has lasted this long; return their violations."""
    first_seen = _read_first_seen(directory, clock)
    now = clock.boot()
    current = {_key(violation): violation for violation in violations if _key(violation)}
    first_seen = {key: first_seen.get(key, now) for key in current}
    record = {"boot_id": clock.boot_id, "seen": first_seen}
    write_text(directory / _FIRST_SEEN_FILE, json.dumps(record), mode=0o644)
    due = [current[key] for key, since in first_seen.items() if now - since >= after_seconds]
    released = [v for v in due if v.kind == IDLE and _release(client, v.lease)]
    stopped = _stop_processes([v for v in due if v.kind != IDLE], client.config.grace_seconds)
    return released + stopped


def _key(violation: Violation) -> str:
    if violation.kind == IDLE:
        return f"lease {violation.lease}"
    return f"{violation.pid}.{violation.process_start}" if violation.process_start else ""


def _read_first_seen(directory: Path, clock: Clock) -> dict[str, float]:
    try:
        document = json.loads((directory / _FIRST_SEEN_FILE).read_text(encoding="utf-8"))
        return dict(document["seen"]) if document["boot_id"] == clock.boot_id else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _release(client: Client, lease_id: str | None) -> bool:
    with contextlib.suppress(GpuyardError):
        client.release(lease_id or "")
        return True
    return False


def _stop_processes(violations: Sequence[Violation], grace_seconds: float) -> list[Violation]:
    """Terminate processes, and kill those that remain after the grace period."""
    signaled = []
    for violation in violations:
        with contextlib.suppress(OSError):
            handle = os.pidfd_open(violation.pid or 0)
            # make sure that the PID has not been reused since it was read
            if processes.start_time(violation.pid or 0) == violation.process_start:
                signal.pidfd_send_signal(handle, signal.SIGTERM)
                signaled.append((violation, handle))
            else:
                os.close(handle)
    deadline = time.monotonic() + grace_seconds
    for _, handle in signaled:
        remaining = max(0.0, deadline - time.monotonic())
        if not select.select([handle], [], [], remaining)[0]:  # readable once it has ended
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        os.close(handle)
    return [violation for violation, _ in signaled]


def _find_terminal(pid: int | None) -> str | None:
    number = processes.terminal(pid) if pid else 0
    major, minor = os.major(number), os.minor(number)
    if _PSEUDO_TERMINALS <= major < _PSEUDO_TERMINALS + 8:
        return f"/dev/pts/{(major - _PSEUDO_TERMINALS) * 256 + minor}"
    return None
