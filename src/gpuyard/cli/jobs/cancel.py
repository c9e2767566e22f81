"""`gpuyard cancel`: end a job."""

from typing import Annotated

import typer


def cancel(
    handles: Annotated[list[str], typer.Argument(metavar="HANDLE", help="The jobs.")],
) -> None:
    """End jobs, or take them out of the queue; those that have ended stay as they are.

    A job is first asked to end (SIGTERM), and killed after a grace period.

    Example: gpuyard cancel local://17
    """
    from gpuyard.jobs.engines.base import engine
    from gpuyard.jobs.job import Handle
    from gpuyard.report.terminal import say

    for named in [Handle.parse(text) for text in handles]:
        found = engine(named.engine)
        before = found.status(named)
        if before.final:
            say(f"{named} is {before.state} already.")
            continue
        found.cancel(named)
        now = found.status(named).state
        say(f"{named} is {now}." if now == "cancelled" else f"{named} is being cancelled.")
