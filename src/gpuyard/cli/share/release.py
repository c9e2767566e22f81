"""`gpuyard release`: end a lease before its time."""

from typing import Annotated

import typer


def release(
    lease: Annotated[str, typer.Argument(metavar="ID", help="The lease, as `who` shows it.")],
) -> None:
    """End a lease: its processes first, then the lease. Your own, or as an admin anybody's.

    Example: gpuyard release 1f3a09c2
    """
    from gpuyard.report.terminal import say
    from gpuyard.share.service.desk import open_desk

    desk = open_desk()
    if desk.config.scheduler == "slurm":
        from gpuyard.share.slurm.jobs import cancel

        cancel(lease)
        say(f"Slurm ends job {lease}.")
        return
    ended = desk.release(lease)
    gpus = ", ".join(map(str, ended.gpus))
    say(f"Lease {ended.id} of {ended.user} is released{f': GPU {gpus}' if gpus else ''}.")
