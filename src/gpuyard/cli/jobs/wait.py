"""`gpuyard wait`: until jobs have ended."""

import sys
from typing import Annotated

import typer

from gpuyard.cli.output import JsonOption, show

_NOT_YET = 75  # as `lease --wait`: sysexits.h's EX_TEMPFAIL


def wait(
    handles: Annotated[list[str], typer.Argument(metavar="HANDLE", help="The jobs.")],
    *,
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="Wait at most this long, like 10min.")
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Wait until jobs have ended. The exit status is 0 only if all succeeded; 75 means that the timeout came first.

    Example: gpuyard wait local://17 local://18 && python evaluate.py
    """
    from gpuyard.jobs.following import wait_for
    from gpuyard.jobs.job import Handle
    from gpuyard.report.answers.jobs.status import ended_sentence, jobs_answer
    from gpuyard.report.terminal import say
    from gpuyard.units import parse_seconds

    found = wait_for(
        [Handle.parse(text) for text in handles],
        wait_seconds=None if timeout is None else parse_seconds(timeout),
        tell=lambda status: say(ended_sentence(status)),
    )
    if json_output:
        show(jobs_answer(found), json_output=True)
    if all(status.state == "succeeded" for status in found):
        return
    sys.exit(1 if all(status.final for status in found) else _NOT_YET)
