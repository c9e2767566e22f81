"""What `gpuyard lease` does, and a reader of its plain command lines that needs no typer."""

import os
import sys
from typing import TYPE_CHECKING, Any

from gpuyard.errors import UserMistake

if TYPE_CHECKING:
    from gpuyard.share.store.broker import Turn
    from gpuyard.share.store.lease import Request

VALUES = {
    "--for": "for_",
    "--gpus": "gpus",
    "--share": "share",
    "--memory": "memory",
    "--wait": "wait",
    "--project": "project",
}
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
        elif word.isdigit() and not what:
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
    from gpuyard.share.launcher import reserved_sentence, run_leased
    from gpuyard.share.service.desk import open_desk
    from gpuyard.share.turns.waiting import wait_for_lease
    from gpuyard.units import parse_seconds

    count, command = _count_and_command(what)
    if (shell or export) and (command or (shell and export)):
        raise UserMistake("use one of --shell, --export and a command")
    if shell:
        command = [os.environ.get("SHELL") or "/bin/sh"]
    if not command and not export:
        raise UserMistake("nothing to run; write it like: gpuyard lease 2 -- python train.py")
    if now and wait:
        raise UserMistake("use either --now or --wait")
    request = _request(
        count,
        command or ["shell", str(os.getppid())],
        for_=for_,
        gpus=gpus,
        share=share,
        memory=memory,
        project=project,
        waits=not now,
    )
    wait_seconds = parse_seconds(wait) if wait else None
    if export:
        return _export(request, wait_seconds)
    desk = open_desk()
    if desk.config.scheduler == "slurm":
        from gpuyard.share.slurm.jobs import run_as_job

        run_as_job(request, command, desk.config, wait_seconds)
    try:
        found, lock = wait_for_lease(desk, request, wait_seconds, tell)
    except KeyboardInterrupt:
        sys.stderr.write("gpuyard: stopped waiting; the place in the queue is given up\n")
        return 130
    if reserved := reserved_sentence(found):
        sys.stderr.write(f"gpuyard: {reserved}\n")
        sys.stderr.flush()
    return run_leased(desk, found, lock, command)


def _export(request: "Request", wait_seconds: float | None) -> int:
    from gpuyard.share.export import export_lease, script

    variables = export_lease(request, wait_seconds, tell)
    sys.stdout.write(script(variables))
    return 0


def _count_and_command(what: list[str]) -> tuple[int | None, list[str]]:
    if what and what[0].isdigit():
        return int(what[0]), what[1:]
    return None, what


def _request(
    count: int | None,
    command: list[str],
    *,
    for_: str | None,
    gpus: str | None,
    share: str | None,
    memory: str | None,
    project: str,
    waits: bool,
) -> "Request":
    import shlex

    from gpuyard.share.store.lease import WHOLE, Request
    from gpuyard.units import parse_bytes, parse_seconds, parse_share

    if share and memory:
        raise UserMistake("use either --share or --memory")
    indices = gpu_indices(gpus)
    return Request(
        count=count if count is not None else len(indices) or 1,
        gpus=indices,
        parts=round(parse_share(share) * WHOLE) if share else WHOLE,
        memory_bytes=round(parse_bytes(memory)) if memory else None,
        seconds=parse_seconds(for_) if for_ else None,
        command=shlex.join(command),
        project=project,
        waits=waits,
    )


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
