"""Processes on GPUs that no lease gives them, and the GPUs that they keep busy."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuyard.share import processes
from gpuyard.share.caller import user_name
from gpuyard.share.config import ShareConfig
from gpuyard.share.gpus import Reading
from gpuyard.share.models import Lease

_MAX_COMMAND_CHARACTERS = 60
_MAX_IDLE_MEMORY = 0.1  # share of a GPU's memory that a driver or a display may use


@dataclass(frozen=True)
class Violation:
    """One violation, as a sentence and as values for programs."""

    kind: str
    """`no-lease`, `other-gpu`, or `idle`."""
    gpu: int | None
    user: str
    pid: int | None
    process_start: int
    lease: str | None
    sentence: str


def find_busy_gpus(
    config: ShareConfig, held: Sequence[Lease], readings: Mapping[int, Reading]
) -> dict[int, str]:
    """Return the GPUs that somebody uses without a lease, each with a sentence that names the process."""
    busy = {}
    for gpu in config.gpus:
        reading = readings.get(gpu.index, Reading())
        violations = [check_process(gpu.index, pid, held) for pid in reading.pids]
        if sentences := [violation.sentence for violation in violations if violation]:
            busy[gpu.index] = "; ".join(sentences)
        elif (
            reading.memory_used_bytes is not None
            and gpu.memory_bytes
            and reading.memory_used_bytes > _MAX_IDLE_MEMORY * gpu.memory_bytes
            and not reading.pids
            and not any(gpu.index in lease.gpus for lease in held)
        ):
            busy[gpu.index] = (
                f"{reading.memory_used_bytes / 1e9:.1f} GB of GPU {gpu.index} are in use by a process that "
                "the driver does not name"
            )
    return busy


def check_process(gpu: int, pid: int, held: Sequence[Lease]) -> Violation | None:
    """Return the violation of a process on a GPU, if it has no lease for it."""
    uid = processes.owner(pid)
    if uid is None:
        return None  # it has ended
    leases = [lease for lease in held if lease.uid == uid]
    lease_id = _read_lease_id(pid)
    if lease_id is not None:  # otherwise it may run on any lease of its user
        leases = [lease for lease in leases if lease.id == lease_id]
    if any(gpu in lease.gpus for lease in leases):
        return None
    user = user_name(uid)
    what = f"process {pid} of {user} ({_read_command(pid)}) is on GPU {gpu}"
    if leases:
        lease = leases[0]
        gpus = ", ".join(map(str, lease.gpus))
        sentence = f"{what}, but its lease {lease.id} is for GPU {gpus}"
        kind, lease_id = "other-gpu", lease.id
    else:
        sentence, kind, lease_id = f"{what} without a lease", "no-lease", None
    return Violation(kind, gpu, user, pid, processes.start_time(pid), lease_id, sentence)


def _read_lease_id(pid: int) -> str | None:
    """Return the lease ID in the environment of a process, if that is readable."""
    with contextlib.suppress(OSError):
        prefix = f"{processes.LEASE_VARIABLE}=".encode()
        for variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if variable.startswith(prefix):
                return variable.removeprefix(prefix).decode(errors="replace")
    return None


def _read_command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return "?"
    text = words.replace(b"\0", b" ").decode(errors="replace")
    return text.strip()[:_MAX_COMMAND_CHARACTERS] or "?"
