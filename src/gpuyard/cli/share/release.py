"""`gpuyard release`: end a lease before its time."""

from typing import Annotated

import typer


def release(
    lease: Annotated[str, typer.Argument(metavar="ID", help="ID of the lease; see `who`.")],
) -> None:
    """Stop the processes of a lease, then end it. Admins can release the leases of all users.

    Example: gpuyard release 1f3a09c2
    """
    from gpuyard.report.terminal import print_line
    from gpuyard.share.client import open_reader

    client = open_reader()  # works on a full disk
    if client.config.scheduler == "slurm":
        from gpuyard.share.slurm.jobs import cancel_job

        cancel_job(lease)
        print_line(f"Slurm cancels job {lease}.")
        return
    released = client.release(lease)
    gpus = ", ".join(map(str, released.gpus))
    print_line(f"Released lease {released.id} of {released.user}{f': GPU {gpus}' if gpus else ''}.")
