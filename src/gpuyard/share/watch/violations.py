"""Who uses GPUs otherwise than leased: processes without a lease, on others' GPUs, and leases that nobody uses.

What is done about it where the admin asks for it: a line on the user's terminal, and after a grace the end of the
process or of the idle lease. Nothing unless asked for.
"""

import contextlib
import json
import os
import select
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpuyard.errors import GpuyardError
from gpuyard.files import write_text
from gpuyard.printable import printable
from gpuyard.share.service.caller import user_name
from gpuyard.share.store.clock import Clock
from gpuyard.share.store.lease import Lease
from gpuyard.share.watch import processes
from gpuyard.share.watch.gpus import Reading

if TYPE_CHECKING:
    from gpuyard.share.service.desk import Desk

IDLE = "idle"
IDLE_SECONDS = 3600.0
_LONGEST_COMMAND = 60
_SEEN = "violations.json"
_PSEUDO_TERMINALS = 136  # the first of eight major numbers of /dev/pts, 256 minor numbers each


@dataclass(frozen=True)
class Violation:
    """One broken rule, in a sentence and for programs."""

    kind: str
    """`no-lease`, `other-gpu` or `idle`."""
    gpu: int | None
    user: str
    pid: int | None
    process_start: int
    lease: str | None
    sentence: str


def find_violations(
    held: Sequence[Lease],
    readings: Mapping[int, Reading],
    now_boot: float,
    idle_seconds: float = IDLE_SECONDS,
) -> list[Violation]:
    """By what runs on the GPUs at one moment, and by how long leases are idle."""
    used = [
        found
        for gpu, reading in sorted(readings.items())
        for pid in reading.pids
        if (found := _misuse(gpu, pid, held)) is not None
    ]
    idle = [
        _idle(lease, now_boot - lease.idle_since_boot)
        for lease in held
        if lease.idle_since_boot is not None and now_boot - lease.idle_since_boot >= idle_seconds
    ]
    return used + idle


def _misuse(gpu: int, pid: int, held: Sequence[Lease]) -> Violation | None:
    try:
        uid = os.stat(f"/proc/{pid}").st_uid  # noqa: PTH116
    except OSError:
        return None  # it has ended
    theirs = [lease for lease in held if lease.uid == uid]
    own = _lease_of(pid)
    if own is not None:  # else it may be of any lease of its user
        theirs = [lease for lease in theirs if lease.id == own]
    if any(gpu in lease.gpus for lease in theirs):
        return None
    user = user_name(uid)
    what = f"process {pid} of {user} ({_command(pid)}) is on GPU {gpu}"
    if theirs:
        lease = theirs[0]
        gpus = ", ".join(map(str, lease.gpus))
        sentence = f"{what}, but its lease {lease.id} is for GPU {gpus}"
        kind, id_ = "other-gpu", lease.id
    else:
        sentence, kind, id_ = f"{what} without a lease", "no-lease", None
    return Violation(kind, gpu, user, pid, processes.start_time(pid), id_, sentence)


def _lease_of(pid: int) -> str | None:
    """What its environment says, where that may be read."""
    with contextlib.suppress(OSError):
        prefix = f"{processes.VARIABLE}=".encode()
        for variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if variable.startswith(prefix):
                return variable.removeprefix(prefix).decode(errors="replace")
    return None


def _command(pid: int) -> str:
    try:
        text = (
            Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        )
    except OSError:
        return "?"
    return text.strip()[:_LONGEST_COMMAND] or "?"


def _idle(lease: Lease, seconds: float) -> Violation:
    hours = seconds / 3600
    sentence = f"lease {lease.id} of {lease.user} has been idle for {hours:.1f} h"
    return Violation(IDLE, None, lease.user, lease.pid, lease.process_start, lease.id, sentence)


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
