"""The effect of `gpuyard status`."""

from gpuyard.cli.show import show


def show_status(handle: str, *, json_output: bool = False) -> None:
    """Show everything that is known about a job."""
    from gpuyard.jobs.engines.base import load_engine
    from gpuyard.jobs.find_job import find_handle
    from gpuyard.jobs.job_wait import get_status
    from gpuyard.report.answers.jobs.status import status_answer

    parsed = find_handle(handle)
    current = get_status(load_engine(parsed.engine), parsed)
    show(status_answer(current), json_output=json_output)
