"""What all commands about a deployment take, and how they say what they do."""

import getpass
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.output import progress_bar
from gpuyard.errors import UserMistake

if TYPE_CHECKING:
    from gpuyard.deploy.deployment import Opened

FileArgument = Annotated[
    Path, typer.Argument(help="The deployment, NAME.deployment.yaml.", show_default=False)
]

AskSudoPasswordOption = Annotated[
    bool,
    typer.Option(
        "--ask-sudo-password",
        help="Ask for the password of sudo on its machines (default: GPUYARD_SUDO_PASSWORD, else none).",
    ),
]
_SUDO_PASSWORD = "GPUYARD_SUDO_PASSWORD"  # noqa: S105  the variable's name


def take_sudo_password() -> str | None:
    """The environment's, from which it goes: no process that is started from here has it."""
    return os.environ.pop(_SUDO_PASSWORD, None)


def checked_sudo_password(given: str | None, *, ask: bool) -> str | None:
    """Asked for on the terminal where it is to be; never shown."""
    if ask:
        if not sys.stdin.isatty():
            raise UserMistake(
                f"--ask-sudo-password asks on a terminal, and there is none; set {_SUDO_PASSWORD} instead"
            )
        given = getpass.getpass("Password of sudo on its machines: ")
    if given and not given.isprintable():
        raise UserMistake("expected a password of printable characters, on one line")
    return given or None


def opened_with_password(
    context: typer.Context, file: Path, *, ask: bool
) -> "tuple[Opened, str | None]":
    """A deployment, and the password of sudo on its machines where one was given."""
    from gpuyard.deploy.deployment import open_deployment

    password = checked_sudo_password(context.obj, ask=ask)
    return open_deployment(file), password


@contextmanager
def telling(first: str) -> Iterator[Callable[[str], None]]:
    """A line that says what is being done, for work whose length nobody knows."""
    from gpuyard.measure.progress import ProgressUpdate

    with progress_bar(first) as tell:
        yield lambda what: tell(ProgressUpdate(what))
