"""What `gpuyard lease` does, and a reader of its plain command lines that needs no typer."""

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpuyard.errors import GpuyardError, UserMistake

if TYPE_CHECKING:
    from gpuyard.share.store.lease import LeaseRequest
    from gpuyard.share.turns.queue import Turn

VALUES = {
    "--for": "for_",
    "--gpus": "gpus",
    "--share": "share",
    "--memory": "memory",
    "--wait": "wait",
    "--project": "project",
}
_MOST_DIGITS = 100
FLAGS = {"--now": "now", "--shell": "shell", "--export": "export"}


def read_line(words: list[str]) -> dict[str, Any] | None:
    """The arguments of `run_lease`; None where the line is not plain: help, or something wrong."""
    options: dict[str, Any] = {}
    what: list[str] = []
    left = iter(words)
    for word in left:
        name, equals, value = word.partition("=")
        if word == "--":
            what += left
        elif word in FLAGS:
            options[FLAGS[word]] = True
        elif name in VALUES:
            given = value if equals else next(left, None)
            if given is None:
                return None
            options[VALUES[name]] = given
        elif word.isdecimal() and not what:
            what.append(word)
        else:
            return None
    return {"what": what, **options}


def run_lease(
    what: list[str],
    *,
    for_: str | None = None,
    gpus: str | None = None,
    share: str | None = None,
    memory: str | None = None,
    now: bool = False,
    wait: str | None = None,
    shell: bool = False,
    export: bool = False,
    project: str = "",
) -> int:
    """The same for whoever has read the command line already; returns the exit status."""
    options = _Options(for_, gpus, share, memory, now, wait, project)
    if not export:
        return _run(what, options, shell=shell)
    try:
        return _export(what, options, shell=shell)
    except GpuyardError as error:
        _refuse_shell(error.exit_status)
        raise


@dataclass(frozen=True)
class _Options:
    """As they were written."""

    for_: str | None
    gpus: str | None
    share: str | None
    memory: str | None
    now: bool
    wait: str | None
    project: str

    def request(self, count: int | None, command: list[str]) -> "LeaseRequest":
        """What is asked for; raises for what nobody could mean."""
        import shlex

        from gpuyard.share.store.lease import WHOLE, LeaseRequest
        from gpuyard.units import parse_memory, parse_seconds, parse_share

        if self.now and self.wait:
            raise UserMistake("use either --now or --wait")
        if self.share and self.memory:
            raise UserMistake("use either --share or --memory")
        indices = gpu_indices(self.gpus)
        return LeaseRequest(
            count=count if count is not None else len(indices) or 1,
            gpus=indices,
            parts=round(parse_share(self.share) * WHOLE) if self.share else WHOLE,
            memory_bytes=round(parse_memory(self.memory)) if self.memory else None,
            seconds=parse_seconds(self.for_) if self.for_ else None,
            command=shlex.join(command),
            project=self.project,
            waits=not self.now,
        )

    @property
    def wait_seconds(self) -> float | None:
        from gpuyard.units import parse_seconds

        return parse_seconds(self.wait) if self.wait else None


def _run(what: list[str], options: _Options, *, shell: bool) -> int:
    from gpuyard.share.launcher import reserved_sentence, run_leased
    from gpuyard.share.service.desk import open_desk
    from gpuyard.share.turns.waiting import wait_for_lease

    count, command = _count_and_command(what)
    if shell and command:
        raise _one_of_them()
    if shell:
        command = [os.environ.get("SHELL") or "/bin/sh"]
    if not command:
        raise UserMistake("nothing to run; write it like: gpuyard lease 2 -- python train.py")
    if not command[0]:
        raise UserMistake("the name of a program can't be empty")
    request, wait_seconds = options.request(count, command), options.wait_seconds
    desk = open_desk()
    if desk.config.scheduler == "slurm":
        from gpuyard.share.slurm.jobs import run_as_job

        run_as_job(request, command, desk.config, wait_seconds)
    if not _is_there(command[0]):  # before it waits for hours
        sys.stderr.write(f"gpuyard: {command[0]} can't be run: there is no such program\n")
        return 127
    try:
        found, lock = wait_for_lease(desk, request, wait_seconds, tell)
    except KeyboardInterrupt:
        sys.stderr.write("gpuyard: stopped waiting; the place in the queue is given up\n")
        return 130
    if reserved := reserved_sentence(found):
        sys.stderr.write(f"gpuyard: {reserved}\n")
        sys.stderr.flush()
    return run_leased(desk, found, lock, command)


def _is_there(program: str) -> bool:
    places = [""] if "/" in program else [f"{path}/" for path in os.get_exec_path()]
    return any(os.path.exists(f"{place}{program}") for place in places)  # noqa: PTH110 - pathlib takes its time


def _export(what: list[str], options: _Options, *, shell: bool) -> int:
    from gpuyard.share.shell_lease import export_lease, script

    count, command = _count_and_command(what)
    if shell or command:
        raise _one_of_them()
    request = options.request(count, ["shell", str(os.getppid())])
    got = export_lease(request, options.wait_seconds, tell)
    if isinstance(got, int):
        _refuse_shell(got)
        return got
    sys.stdout.write(script(got))
    return 0


def _refuse_shell(status: int) -> None:
    """Without a lease it would see all GPUs, and use others'."""
    from gpuyard.share.shell_lease import refused_script

    hidden, text = refused_script(status)
    sys.stdout.write(text)
    sys.stdout.flush()
    if hidden:
        sys.stderr.write("gpuyard: this shell has no lease, and sees no GPU\n")
        sys.stderr.flush()


def _one_of_them() -> UserMistake:
    return UserMistake("use one of --shell, --export and a command")


def _count_and_command(what: list[str]) -> tuple[int | None, list[str]]:
    if what and what[0].isdecimal() and len(what[0]) < _MOST_DIGITS:
        return int(what[0]), what[1:]
    return None, what


def gpu_indices(gpus: str | None) -> tuple[int, ...]:
    """ "3,4" → (3, 4)."""
    if not gpus:
        return ()
    try:
        return tuple(int(index) for index in gpus.split(","))
    except ValueError:
        raise UserMistake(f"expected GPUs by index like 3,4, got {gpus!r}") from None


def tell(turn: "Turn") -> None:
    """Say how far a request is."""
    from gpuyard.units import format_seconds

    when = (
        f", expected to start in {format_seconds(max(1.0, turn.expected_seconds))}"
        if turn.expected_seconds is not None
        else ""
    )
    why = f": {turn.reason}" if turn.reason else ""
    sys.stderr.write(f"gpuyard: waiting, number {turn.position} in the queue{when}{why}\n")
    sys.stderr.flush()
