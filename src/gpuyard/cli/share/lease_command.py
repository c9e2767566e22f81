"""The `gpuyard lease` command: its options, a parser of plain command lines that needs no typer, and what it does."""

import os
import shlex
import sys
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from gpuyard.errors import UserMistake

if TYPE_CHECKING:
    from gpuyard.share.models import LeaseRequest

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
        from gpuyard.api.lease import create_request
        from gpuyard.units import parse_seconds

        if self.now and self.wait:
            raise UserMistake("use either --now or --wait")
        if self.share and self.gpu_memory:
            raise UserMistake("use either --share or --gpu-memory")
        return create_request(
            count,
            command,
            seconds=parse_seconds(self.for_) if self.for_ else None,
            gpu_ids=self.gpu_ids or (),
            share=self.share or None,
            memory=self.gpu_memory or None,
            waits=not self.now,
            project=self.project,
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
    count, command = _split_count(count_and_command)
    if sum((options.shell, options.export, bool(command))) > 1:
        raise UserMistake("use only one of --shell, --export, and a command")
    if options.shell:
        command = [os.environ.get("SHELL") or "/bin/sh"]
    if options.export:
        return _export(options.request(count, f"shell {os.getppid()}"), options.wait_seconds)
    if not command:
        raise UserMistake("no command given; write it like: gpuyard lease 2 -- python train.py")
    if not command[0]:
        raise UserMistake("the name of the program must not be empty")
    from gpuyard.api.lease import run_on_lease

    return run_on_lease(command, options.request(count, shlex.join(command)), options.wait_seconds)


def _export(request: "LeaseRequest", wait_seconds: float | None) -> int:
    from gpuyard.api.lease import export_to_shell

    result = export_to_shell(request, wait_seconds)
    if isinstance(result, int):
        return result
    sys.stdout.write(result)
    return 0


def _split_count(count_and_command: list[str]) -> tuple[int | None, list[str]]:
    first = count_and_command[0] if count_and_command else ""
    if first.isdecimal() and len(first) < _MAX_DIGITS:
        return int(first), count_and_command[1:]
    return None, count_and_command
