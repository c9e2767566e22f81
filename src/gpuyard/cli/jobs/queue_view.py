"""The effect of `gpuyard queue` without a subcommand: the list of jobs."""

from gpuyard.cli.show import show


def show_queue(
    *,
    all_: bool = False,
    last: int | None = None,
    everyone: bool = False,
    json_output: bool = False,
) -> None:
    """Show the open jobs, and the requested number of ended ones."""
    from gpuyard.api.queue import queue

    show(queue(all_=all_, last=last, everyone=everyone).answer, json_output=json_output)
