"""The `gpuyard lease` command: its options, a parser of plain command lines that needs no typer, and what it does."""

import os
import shlex
import sys
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from gpuyard.errors import UserMistake

if TYPE_CHECKING:
    from gpuyard.share.models import LeaseRequest, QueueStatus

_MAX_DIGITS = 100


def _option(flag: str, help_: str, default: Any = None, metavar: str | None = None) -> Any:
    return field(default=default, metadata={"flag": flag, "help": help_, "metavar": metavar})


@dataclass(frozen=True)
class LeaseOptions:
    """The options as they stand on the command line. `lease` declares them to typer from these fields."""

    for_: str | None = _option(
        "--for",
        "Longest time to hold them, like 2h (default: until the command ends).",
        metavar="TIME",
    )
    gpu_ids: str | None = _option("--gpu-ids", "GPUs by index, like 0,1.", metavar="LIST")
    share: str | None = _option("--share", "Part of each GPU, like 0.5.", metavar="SHARE")
    gpu_memory: str | None = _option(
        "--gpu-memory", "Memory of each GPU, like 12GB.", metavar="SIZE"
    )
    now: bool = _option("--now", "Fail instead of waiting.", default=False)
    wait: str | None = _option("--wait", "Wait at most this long, like 10min.", metavar="TIME")
    shell: bool = _option("--shell", "Open a shell instead of running a command.", default=False)
    export: bool = _option(
        "--export", 'For eval "$(…)": hold them as long as this shell lives.', default=False
    )
    project: str = _option(
        "--project", "Project that `usage` counts it under.", default="", metavar="NAME"
    )
    even_if_busy: bool = _option(
        "--even-if-busy",
        "Accept GPUs that a process without a lease uses, if there are no others.",
        default=False,
    )

    def request(self, count: int | None, command: str) -> "LeaseRequest":
        """Build the request; raise UserMistake for options that contradict each other."""
        from gpuyard.share.models import WHOLE, LeaseRequest
        from gpuyard.units import parse_memory, parse_seconds, parse_share

        if self.now and self.wait:
            raise UserMistake("use either --now or --wait")
        if self.share and self.gpu_memory:
            raise UserMistake("use either --share or --gpu-memory")
        indices = parse_indices(self.gpu_ids)
        return LeaseRequest(
            count=count if count is not None else len(indices) or 1,
            gpus=indices,
            parts=round(parse_share(self.share) * WHOLE) if self.share else WHOLE,
            memory_bytes=round(parse_memory(self.gpu_memory)) if self.gpu_memory else None,
            seconds=parse_seconds(self.for_) if self.for_ else None,
            command=command,
            project=self.project,
            waits=not self.now,
            even_if_busy=self.even_if_busy,
        )

    @property
    def wait_seconds(self) -> float | None:
        from gpuyard.units import parse_seconds

        return parse_seconds(self.wait) if self.wait else None


def parse_plain(words: list[str]) -> tuple[list[str], LeaseOptions] | None:
    """Parse a plain command line; return None for help or a mistake, which typer handles."""
    by_flag = {option.metadata["flag"]: option for option in fields(LeaseOptions)}
    values: dict[str, Any] = {}
    count_and_command: list[str] = []
    remaining = iter(words)
    for word in remaining:
        flag, equals, value = word.partition("=")
        option = by_flag.get(flag)
        if word == "--":
            count_and_command += remaining
        elif option is None:
            if not word.isdecimal() or count_and_command:
                return None
            count_and_command.append(word)
        elif option.type is bool:
            if equals:
                return None
            values[option.name] = True
        else:
            argument = value if equals else next(remaining, None)
            if argument is None:
                return None
            values[option.name] = argument
    return count_and_command, LeaseOptions(**values)


def run_lease(count_and_command: list[str], options: LeaseOptions) -> int:
    """Run the command, and return its exit status."""
    return (_export if options.export else _run)(count_and_command, options)


def _run(count_and_command: list[str], options: LeaseOptions) -> int:
    from gpuyard.share.client import open_client
    from gpuyard.share.launcher import describe_reserved_end, run_leased, wait_for_lease

    count, command = _split_count(count_and_command)
    if options.shell and command:
        raise _several_modes()
    if options.shell:
        command = [os.environ.get("SHELL") or "/bin/sh"]
    if not command:
        raise UserMistake("no command given; write it like: gpuyard lease 2 -- python train.py")
    if not command[0]:
        raise UserMistake("the name of the program must not be empty")
    request, wait_seconds = options.request(count, shlex.join(command)), options.wait_seconds
    client = open_client()
    if client.config.scheduler == "slurm":
        from gpuyard.share.slurm.jobs import run_as_job

        run_as_job(request, command, client.config, wait_seconds)
    if not _exists(command[0]):  # before it waits for hours
        _print(f"{command[0]} cannot be run: program not found")
        return 127
    try:
        lease, lock = wait_for_lease(client, request, wait_seconds, print_status)
    except KeyboardInterrupt:
        _print("stopped waiting and left the queue")
        return 130
    if reserved := describe_reserved_end(lease):
        _print(reserved)
    if request.seconds is None and lease.seconds is not None:
        from gpuyard.units import format_seconds

        _print(f"the lease ends in {format_seconds(lease.seconds)}, the maximum on this machine")
    return run_leased(client, lease, lock, command)


def _exists(program: str) -> bool:
    directories = [""] if "/" in program else [f"{path}/" for path in os.get_exec_path()]
    return any(os.path.exists(f"{path}{program}") for path in directories)  # noqa: PTH110 - pathlib is slower


def _export(count_and_command: list[str], options: LeaseOptions) -> int:
    from gpuyard.share.shell_lease import export_lease, format_exports

    count, command = _split_count(count_and_command)
    if options.shell or command:
        raise _several_modes()
    request = options.request(count, f"shell {os.getppid()}")
    result = export_lease(request, options.wait_seconds, print_status)
    if isinstance(result, int):
        return result
    sys.stdout.write(format_exports(result))
    return 0


def _several_modes() -> UserMistake:
    return UserMistake("use only one of --shell, --export, and a command")


def _split_count(count_and_command: list[str]) -> tuple[int | None, list[str]]:
    first = count_and_command[0] if count_and_command else ""
    if first.isdecimal() and len(first) < _MAX_DIGITS:
        return int(first), count_and_command[1:]
    return None, count_and_command


def parse_indices(gpus: str | None) -> tuple[int, ...]:
    """Parse a list of GPUs: "3,4" → (3, 4)."""
    if not gpus:
        return ()
    try:
        return tuple(int(index) for index in gpus.split(","))
    except ValueError:
        raise UserMistake(f"expected GPUs by index like 3,4, got {gpus!r}") from None


def print_status(status: "QueueStatus") -> None:
    """Report the place of a request in the queue."""
    from gpuyard.units import format_seconds

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
