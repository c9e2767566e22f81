"""`gpuyard cancel`: stop jobs."""

from typing import Annotated

import typer


def cancel(
    handles: Annotated[list[str], typer.Argument(metavar="HANDLE", help="Handles of the jobs.")],
) -> None:
    """Stop jobs or remove them from the queue; jobs that have ended stay as they are.

    A job first gets SIGTERM and is killed after a grace period.

    Example: gpuyard cancel local://17
    """
    from gpuyard.jobs.engines.base import load_engine
    from gpuyard.jobs.find_job import find_handle
    from gpuyard.report.terminal import print_line

    for handle in [find_handle(text) for text in handles]:
        engine = load_engine(handle.engine)
        before = engine.status(handle)
        if before.final:
            print_line(f"{handle} is already {before.state}.")
            continue
        engine.cancel(handle)
        state = engine.status(handle).state
        print_line(
            f"{handle} is {state}." if state == "cancelled" else f"{handle} is being canceled."
        )
