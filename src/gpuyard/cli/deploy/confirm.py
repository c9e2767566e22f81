"""Ask before machines are removed whose files would be lost, and refuse while jobs run on them."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.deploy.options import report_progress
from gpuyard.errors import GpuyardError, UserMistake

if TYPE_CHECKING:
    from gpuyard.deploy.deployment import LoadedDeployment
    from gpuyard.deploy.loss import Loss
    from gpuyard.deploy.state import Host

YesOption = Annotated[
    bool, typer.Option("--yes", help="Delete machines and their files without asking.")
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Delete machines although jobs run on them.")
]
_MAX_JOBS = 5


class DeletionNotConfirmed(UserMistake):
    """Machines would be removed, and the user has not agreed to it yet."""

    def __init__(self, loss: "Loss", file: Path) -> None:
        self.loss = loss
        super().__init__(
            f"this deletes {loss.describe()}. Add --yes to agree"
            + (
                f", after you have copied the files with: gpuyard deploy fetch {file}"
                * bool(loss.files)
            )
        )


def check_loss(
    loaded: "LoadedDeployment",
    lost: "Sequence[Host]",
    file: Path,
    *,
    yes: bool,
    force: bool,
    removes_storage: bool,
    agreed: "Loss | None" = None,
) -> None:
    """Raise if jobs run on machines that would be removed, or if their files would be lost and the user has not agreed.

    `agreed` is a loss that the user has agreed to, so that only a greater one needs another agreement. Storage that is
    not on the head outlives its machines, unless `removes_storage` says that it is removed too. Otherwise, only the loss
    of the shared storage needs an agreement.
    """
    from gpuyard.deploy.loss import inspect_loss

    deployment = loaded.deployment
    loss = inspect_loss(
        loaded,
        lost,
        loaded.state.hosts(),
        shared=deployment.shared if "shared-storage" in deployment.head else None,
        people=[user.name for user in deployment.users],
        shared_is_on_head=loaded.target.shared_is_on_head,
    )
    if not (removes_storage or loaded.target.shared_is_on_head):
        loss = replace(loss, shared=None, files=0, bytes=0)
    if loss.jobs and not force:
        shown = "; ".join(loss.jobs[:_MAX_JOBS])
        more = f"; and {len(loss.jobs) - _MAX_JOBS} more" if len(loss.jobs) > _MAX_JOBS else ""
        raise GpuyardError(
            f"jobs would be stopped: {shown}{more}. Wait until they end, or add --force"
        )
    if agreed is not None and agreed.covers(loss):
        return
    if not yes and (removes_storage or loss.shared):
        raise DeletionNotConfirmed(loss, file)


def ask(loaded: "LoadedDeployment", refusal: DeletionNotConfirmed) -> None:
    """Ask on the terminal, and offer to copy the shared files first. Without a terminal, raise the refusal."""
    from gpuyard.report.terminal import print_line

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise refusal
    print_line(f"This deletes {refusal.loss.describe()}.")
    if refusal.loss.files:
        _offer_copy(loaded)
    if not typer.confirm("Delete them?", err=True):
        raise GpuyardError("nothing was removed")


def _offer_copy(loaded: "LoadedDeployment") -> None:
    from gpuyard.deploy.access.fetch import plan_fetch, run_fetch
    from gpuyard.report.terminal import print_line

    head = loaded.state.hosts()[0]
    plan = plan_fetch(loaded, head)
    question = f"Copy {plan.source} to {plan.destination.absolute()} first?"
    if typer.confirm(question, default=True, err=True):
        with report_progress(f"Connecting to {head.name}", steps=False) as report:
            run_fetch(loaded, plan, report)
        print_line(f"Copied {plan.source} to {plan.destination.absolute()}.")
