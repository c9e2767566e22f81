"""The effect of `gpuyard status`."""

from gpuyard.cli.show import show


def show_status(handle: str, *, json_output: bool = False) -> None:
    """Show everything that is known about a job."""
    from gpuyard.api.queue import status

    show(status(handle).answer, json_output=json_output)
