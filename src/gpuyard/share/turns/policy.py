"""What is done about violations where the admin asks for it: a line on the user's terminal, and after a grace the end
of the process or of the idle lease. Nothing unless asked for."""

import contextlib
import json
import os
import select
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpuyard.errors import GpuyardError
from gpuyard.files import write_text
from gpuyard.printable import printable
from gpuyard.share.store.clock import Clock
from gpuyard.share.watch import processes
from gpuyard.share.watch.violations import IDLE, Violation

if TYPE_CHECKING:
    from gpuyard.share.service.desk import Desk

_SEEN = "violations.json"
_PSEUDO_TERMINALS = 136  # the first of eight major numbers of /dev/pts, 256 minor numbers each


def warn(violations: Sequence[Violation]) -> list[Violation]:
    """Write to the terminal of each process that has one; those that could be told."""
    told = []
    for violation in violations:
        terminal = _terminal(violation.pid)
        if terminal is None:
            continue
        with contextlib.suppress(OSError):
            handle = os.open(terminal, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
            try:
                os.write(handle, f"\r\ngpuyard: {printable(violation.sentence)}\r\n".encode())
                told.append(violation)
            finally:
                os.close(handle)
    return told


def stop_after(
    desk: "Desk",
    directory: Path,
    violations: Sequence[Violation],
    grace_seconds: float,
    clock: Clock,
) -> list[Violation]:
    """End processes that have broken a rule, and leases that were idle, for so long; those that were ended."""
    seen = _read(directory, clock)
    now = clock.boot()
    current = {_key(violation): violation for violation in violations if _key(violation)}
    first = {key: seen.get(key, now) for key in current}
    write_text(directory / _SEEN, json.dumps({"boot_id": clock.boot_id, "seen": first}), mode=0o644)
    due = [current[key] for key, since in first.items() if now - since >= grace_seconds]
    idle = [one for one in due if one.kind == IDLE and _release(desk, one.lease)]
    return idle + _end([one for one in due if one.kind != IDLE], desk.config.grace_seconds)


def _key(violation: Violation) -> str:
    if violation.kind == IDLE:
        return f"lease {violation.lease}"
    return f"{violation.pid}.{violation.process_start}" if violation.process_start else ""


def _read(directory: Path, clock: Clock) -> dict[str, float]:
    try:
        document = json.loads((directory / _SEEN).read_text(encoding="utf-8"))
        return dict(document["seen"]) if document["boot_id"] == clock.boot_id else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _release(desk: "Desk", lease: str | None) -> bool:
    with contextlib.suppress(GpuyardError):
        desk.release(lease or "")
        return True
    return False


def _end(violations: Sequence[Violation], grace_seconds: float) -> list[Violation]:
    """Ask them to end, and end after a moment what did not."""
    asked = []
    for violation in violations:
        with contextlib.suppress(OSError):
            handle = os.pidfd_open(violation.pid or 0)
            # the same process as was seen, and no later one of its number
            if processes.start_time(violation.pid or 0) == violation.process_start:
                signal.pidfd_send_signal(handle, signal.SIGTERM)
                asked.append((violation, handle))
            else:
                os.close(handle)
    deadline = time.monotonic() + grace_seconds
    for _, handle in asked:
        left = max(0.0, deadline - time.monotonic())
        if not select.select([handle], [], [], left)[0]:  # readable once it has ended
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        os.close(handle)
    return [violation for violation, _ in asked]


def _terminal(pid: int | None) -> str | None:
    number = processes.terminal(pid) if pid else 0
    major, minor = os.major(number), os.minor(number)
    if _PSEUDO_TERMINALS <= major < _PSEUDO_TERMINALS + 8:
        return f"/dev/pts/{(major - _PSEUDO_TERMINALS) * 256 + minor}"
    return None
