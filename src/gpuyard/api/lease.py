"""Hold GPUs of a shared server: inside a Python process (`with gy.lease(2, hours=4): train()`), for a command that
starts on them, or for the calling shell."""

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.share.client import Client, open_client
from gpuyard.share.launcher import (
    describe_reserved_end,
    leased_environment,
    run_leased,
    wait_for_lease,
)
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
    if time is not None:
        seconds: float | None = parse_seconds(time)
    else:
        seconds = None if hours is None else hours * 3600
    request = create_request(
        gpus,
        f"python {' '.join(sys.argv)}".strip(),
        seconds=seconds,
        gpu_ids=gpu_ids,
        share=share,
        memory=memory,
        waits=wait is not False,
        project=project,
        even_if_busy=even_if_busy,
    )
    client = open_client()
    if client.config.scheduler == "slurm":
        raise UserMistake(
            "Slurm schedules this server, so a running process cannot get GPUs; start it with gpuyard lease N -- python …"
        )
    held, lock = wait_for_lease(
        client, request, parse_seconds(wait) if isinstance(wait, str) else None, print_place
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


def create_request(
    gpus: int | None,
    command: str,
    *,
    seconds: float | None = None,
    gpu_ids: str | Sequence[int] = (),
    share: str | float | None = None,
    memory: str | None = None,
    waits: bool = True,
    project: str = "",
    even_if_busy: bool = False,
) -> LeaseRequest:
    """Build a request from values as people write them; `command` is what others see."""
    if share is not None and memory is not None:
        raise UserMistake("give a share of each GPU or an amount of its memory, not both")
    if gpus is not None and not isinstance(gpus, int):
        raise UserMistake(f"expected a whole number of GPUs, got {gpus!r}")
    indices = parse_indices(gpu_ids)
    return LeaseRequest(
        count=gpus if gpus is not None else len(indices) or 1,
        gpus=indices,
        parts=WHOLE if share is None else round(parse_share(share) * WHOLE),
        memory_bytes=None if memory is None else round(parse_memory(memory)),
        seconds=seconds,
        command=command,
        project=project,
        waits=waits,
        even_if_busy=even_if_busy,
    )


def parse_indices(gpus: str | Sequence[int]) -> tuple[int, ...]:
    """Return the indices of GPUs: "3,4" → (3, 4)."""
    if not isinstance(gpus, str):
        return tuple(gpus)
    try:
        return tuple(int(index) for index in gpus.split(",")) if gpus else ()
    except ValueError:
        raise UserMistake(f"expected GPUs by index like 3,4, got {gpus!r}") from None


def run_on_lease(
    command: Sequence[str], request: LeaseRequest, wait_seconds: float | None = None
) -> int:
    """Wait for the GPUs, run the command on them, and return its exit status. With Slurm, it becomes an srun."""
    client = open_client()
    if client.config.scheduler == "slurm":
        from gpuyard.share.slurm.jobs import run_as_job

        run_as_job(request, command, client.config, wait_seconds)
    if not _exists(command[0]):  # before it waits for hours
        _print(f"{command[0]} cannot be run: program not found")
        return 127
    try:
        held, lock = wait_for_lease(client, request, wait_seconds, print_place)
    except KeyboardInterrupt:
        _print("stopped waiting and left the queue")
        return 130
    if reserved := describe_reserved_end(held):
        _print(reserved)
    if request.seconds is None and held.seconds is not None:
        _print(f"the lease ends in {format_seconds(held.seconds)}, the maximum on this machine")
    return run_leased(client, held, lock, command)


def export_to_shell(request: LeaseRequest, wait_seconds: float | None = None) -> str | int:
    """Return the script that gives the calling shell a lease as long as it lives, or the exit status of a failure."""
    from gpuyard.share.shell_lease import export_lease, format_exports

    result = export_lease(request, wait_seconds, print_place)
    return result if isinstance(result, int) else format_exports(result)


def _exists(program: str) -> bool:
    directories = [""] if "/" in program else [f"{path}/" for path in os.get_exec_path()]
    return any(os.path.exists(f"{path}{program}") for path in directories)  # noqa: PTH110 - pathlib is slower


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


def print_place(status: QueueStatus) -> None:
    """Report the place of a request in the queue on stderr."""
    if status.lease.held:
        _print(f"you share it: {status.reason}")
        return
    expected = ""
    if status.expected_seconds is not None:
        expected = f", expected to start in {format_seconds(max(1.0, status.expected_seconds))}"
    reason = f": {status.reason}" if status.reason else ""
    _print(f"waiting, number {status.position} in the queue{expected}{reason}")


def _print(sentence: str) -> None:
    sys.stderr.write(f"gpuyard: {sentence}\n")
    sys.stderr.flush()
