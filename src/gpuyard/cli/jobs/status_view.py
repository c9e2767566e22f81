"""The effect of `gpuyard status`."""

from gpuyard.cli.show import show


def show_status(handle: str | None = None, *, json_output: bool = False) -> None:
    """Show everything that is known about a job; without a handle, list the open jobs."""
    from gpuyard.api.queue import queue, status

    result = queue() if handle is None else status(handle)
    show(result.answer, json_output=json_output)
