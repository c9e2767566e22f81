"""What is done about violations where the admin asks for it: a line on the user's terminal, and after a grace the end
of the process. Nothing unless asked for."""

import contextlib
import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from gpuyard.files import write_text
from gpuyard.printable import printable
from gpuyard.share.store.clock import Clock
from gpuyard.share.watch import processes
from gpuyard.share.watch.violations import Violation

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
    directory: Path, violations: Sequence[Violation], grace_seconds: float, clock: Clock
) -> list[Violation]:
    """End processes that have broken a rule for so long; idle leases are only told. Those that were ended."""
    seen = _read(directory, clock)
    now = clock.boot()
    current = {
        f"{violation.pid}.{violation.process_start}": violation
        for violation in violations
        if violation.kind != "idle" and violation.pid is not None and violation.process_start
    }
    first = {key: seen.get(key, now) for key in current}
    write_text(directory / _SEEN, json.dumps({"boot_id": clock.boot_id, "seen": first}), mode=0o644)
    due = [current[key] for key, since in first.items() if now - since >= grace_seconds]
    return [violation for violation in due if _end(violation)]


def _read(directory: Path, clock: Clock) -> dict[str, float]:
    try:
        document = json.loads((directory / _SEEN).read_text(encoding="utf-8"))
        return dict(document["seen"]) if document["boot_id"] == clock.boot_id else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _end(violation: Violation) -> bool:
    assert violation.pid is not None  # noqa: S101 - only such are due
    try:
        handle = os.pidfd_open(violation.pid)
    except OSError:
        return False
    try:
        # the same process as was seen, and no later one of its number
        if processes.start_time(violation.pid) != violation.process_start:
            return False
        signal.pidfd_send_signal(handle, signal.SIGTERM)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def _terminal(pid: int | None) -> str | None:
    number = processes.terminal(pid) if pid else 0
    major, minor = os.major(number), os.minor(number)
    if _PSEUDO_TERMINALS <= major < _PSEUDO_TERMINALS + 8:
        return f"/dev/pts/{(major - _PSEUDO_TERMINALS) * 256 + minor}"
    return None
