"""`gpuyard status`: how far a job is."""

from typing import Annotated

import typer

from gpuyard.cli.output import JsonOption, show

HandleArgument = Annotated[
    str, typer.Argument(metavar="HANDLE", help="The job, like local://17, as `submit` printed it.")
]


def status(handle: HandleArgument, *, json_output: JsonOption = False) -> None:
    """Show a job's state, restarts, exit status and GPUs.

    Example: gpuyard status local://17 --json
    """
    from gpuyard.jobs.engines.base import engine
    from gpuyard.jobs.following import status_with_progress
    from gpuyard.jobs.job import Handle
    from gpuyard.report.answers.jobs.status import status_answer

    named = Handle.parse(handle)
    found = status_with_progress(engine(named.engine), named)
    show(status_answer(found), json_output=json_output)
