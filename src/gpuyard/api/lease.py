"""Hold GPUs of a shared server inside a Python process: `with gy.lease(2, hours=4): train()`."""

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.share.client import Client, open_client
from gpuyard.share.launcher import leased_environment, wait_for_lease
from gpuyard.share.models import WHOLE, Lease, LeaseRequest, QueueStatus
from gpuyard.units import format_seconds, parse_memory, parse_seconds, parse_share


@dataclass(frozen=True)
class HeldGpus:
    """The GPUs that this process holds."""

    id: str
    gpus: tuple[int, ...]
    """Their indices, as in nvidia-smi."""
    seconds: float | None
    """The time after which the server takes them back; None: when the block ends."""


@contextlib.contextmanager
def lease(
    gpus: int | None = None,
    *,
    hours: float | None = None,
    time: str | None = None,
    gpu_ids: Sequence[int] = (),
    share: str | float | None = None,
    memory: str | None = None,
    wait: bool | str = True,
    project: str = "",
    even_if_busy: bool = False,
) -> Iterator[HeldGpus]:
    """Hold a number of GPUs, or those with these indices, until the block ends or the process does.

    Inside the block, CUDA_VISIBLE_DEVICES and GPUYARD_LEASE are set, also for processes that it starts; enter it before
    CUDA is used. `wait` is False, or the longest time to wait, like "10min"; then NoneFree is raised if none are free.
    """
    if hours is not None and time is not None:
        raise UserMistake("give hours or time, not both")
    if share is not None and memory is not None:
        raise UserMistake("give share or memory, not both")
    seconds = parse_seconds(time) if time is not None else hours * 3600 if hours else None
    request = LeaseRequest(
        count=gpus if gpus is not None else len(gpu_ids) or 1,
        gpus=tuple(gpu_ids),
        parts=WHOLE if share is None else round(parse_share(share) * WHOLE),
        memory_bytes=None if memory is None else round(parse_memory(memory)),
        seconds=seconds,
        command=f"python {' '.join(sys.argv)}".strip(),
        project=project,
        waits=wait is not False,
        even_if_busy=even_if_busy,
    )
    client = open_client()
    if client.config.scheduler == "slurm":
        raise UserMistake(
            "Slurm schedules this server, so a running process cannot get GPUs; start it with gpuyard lease N -- python …"
        )
    held, lock = wait_for_lease(
        client, request, parse_seconds(wait) if isinstance(wait, str) else None, _report
    )
    os.set_inheritable(lock, True)  # processes that the block starts hold the lease, too
    variables = leased_environment(held, client.config)
    before = {name: os.environ.get(name) for name in variables}
    try:
        if client.config.isolation:
            client.enclose(held.id, os.getpid())
        os.environ.update(variables)
        yield HeldGpus(held.id, tuple(held.gpus), held.seconds)
    finally:
        _restore(before)
        _give_back(client, held, lock)


def _restore(before: dict[str, str | None]) -> None:
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _give_back(client: Client, held: Lease, lock: int) -> None:
    """End the lease. If the server does not respond, the next request of anybody finds its lock free."""
    os.close(lock)
    with contextlib.suppress(GpuyardError, OSError):
        client.finish(held.id, childless=False)


def _report(status: QueueStatus) -> None:
    if status.lease.held:
        return
    expected = ""
    if status.expected_seconds is not None:
        expected = f", expected to start in {format_seconds(max(1.0, status.expected_seconds))}"
    sys.stderr.write(f"gpuyard: waiting, number {status.position} in the queue{expected}\n")
