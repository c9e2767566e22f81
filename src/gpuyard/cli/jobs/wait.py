"""`gpuyard wait`: wait until jobs have ended."""

import sys
from typing import Annotated

import typer

from gpuyard.cli.output import JsonOption, show

_TIMED_OUT = 75  # EX_TEMPFAIL of sysexits.h, as for `lease --wait`


def wait(
    handles: Annotated[list[str], typer.Argument(metavar="HANDLE", help="Handles of the jobs.")],
    *,
    wait_time: Annotated[
        str | None,
        typer.Option("--wait", metavar="TIME", help="Wait at most this long, like 10min."),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Wait until jobs have ended. The exit status is 0 if all succeeded, 75 after --wait, and 1 otherwise.

    Example: gpuyard wait local://17 local://18 && python evaluate.py
    """
    from gpuyard.jobs.find_job import find_handle
    from gpuyard.jobs.job_wait import wait_for_jobs
    from gpuyard.report.answers.jobs.status import describe_end, jobs_answer
    from gpuyard.report.terminal import print_line
    from gpuyard.units import parse_seconds

    statuses = wait_for_jobs(
        [find_handle(text) for text in handles],
        wait_seconds=None if wait_time is None else parse_seconds(wait_time),
        on_end=lambda status: print_line(describe_end(status)),
    )
    if json_output:
        show(jobs_answer(statuses), json_output=True)
    if all(status.state == "succeeded" for status in statuses):
        return
    sys.exit(1 if all(status.final for status in statuses) else _TIMED_OUT)
