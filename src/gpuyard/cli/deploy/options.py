"""Options that the deployment commands share, and their progress display."""

import getpass
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.output import progress_bar
from gpuyard.errors import UserMistake
from gpuyard.printable import make_printable

if TYPE_CHECKING:
    from gpuyard.deploy import StatusCallback
    from gpuyard.deploy.access.host_keys import HostKey
    from gpuyard.deploy.deployment import LoadedDeployment

FileArgument = Annotated[
    Path, typer.Argument(help="Deployment file, NAME.deployment.yaml.", show_default=False)
]

AskSudoPasswordOption = Annotated[
    bool,
    typer.Option(
        "--ask-sudo-password",
        help="Ask for the sudo password of its machines (default: GPUYARD_SUDO_PASSWORD, or none).",
    ),
]
_SUDO_PASSWORD = "GPUYARD_SUDO_PASSWORD"  # noqa: S105  the variable's name


def pop_sudo_password() -> str | None:
    """Return the password and remove it from the environment, so that no child process inherits it."""
    return os.environ.pop(_SUDO_PASSWORD, None)


def resolve_sudo_password(password: str | None, *, ask: bool) -> str | None:
    """Check the password, after asking for it on the terminal if requested; it is never shown."""
    if ask:
        if not sys.stdin.isatty():
            raise UserMistake(f"--ask-sudo-password needs a terminal; set {_SUDO_PASSWORD} instead")
        password = getpass.getpass("sudo password of its machines: ")
    if password and not password.isprintable():
        raise UserMistake("the sudo password must be one line of printable characters")
    return password or None


def load_with_password(
    context: typer.Context, file: Path, *, ask: bool
) -> "tuple[LoadedDeployment, str | None]":
    """Return a deployment, and the sudo password of its machines if there is one."""
    from gpuyard.deploy.deployment import load_deployment

    password = resolve_sudo_password(context.obj, ask=ask)
    return load_deployment(file), password


def confirm_host_keys(keys: "Sequence[HostKey]") -> bool:
    """Ask at a terminal whether these are the keys of the user's machines."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    listed = "".join(f"  {key}\n" for key in keys)
    sys.stderr.write(make_printable(f"These host keys are unknown:\n{listed}"))
    return typer.confirm("Are they the keys of your machines?", default=False, err=True)


@contextmanager
def report_progress(first: str, *, steps: bool = True) -> "Iterator[StatusCallback]":
    """Show the current step of work of unknown duration. In a file or a pipe, each step becomes a line.

    Without `steps`, only the first becomes a line.
    """
    from gpuyard.measure.progress import ProgressUpdate
    from gpuyard.report.terminal import print_line

    if not sys.stderr.isatty():
        print_line(first)
        yield print_line if steps else lambda _: None
        return
    with progress_bar(first) as update:
        yield lambda step: update(ProgressUpdate(step))
