"""Who uses GPUs otherwise than leased: processes without a lease, on others' GPUs, and leases that nobody uses."""

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuyard.share.service.caller import user_name
from gpuyard.share.store.lease import Lease
from gpuyard.share.watch import processes
from gpuyard.share.watch.gpus import Reading

IDLE = "idle"
IDLE_SECONDS = 3600.0
_LONGEST_COMMAND = 60


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
