"""`gpuyard stack`: the same driver, CUDA, frameworks and containers on every machine."""

from pathlib import Path
from typing import Annotated

import typer

from gpuyard.cli.output import JsonOption, progress_bar, show, writable, write_exactly

app = typer.Typer(
    help="The same driver, CUDA, frameworks and containers on every machine.", no_args_is_help=True
)
LockOption = Annotated[
    Path | None,
    typer.Option("--lock", help="A lock of your own (default: the one that ships with gpuyard)."),
]


@app.callback()
def stack() -> None:
    """The same driver, CUDA, frameworks and containers on every machine."""


@app.command()
def lock(
    *,
    lock_file: LockOption = None,
    requirements: Annotated[
        str | None,
        typer.Option(
            "--requirements",
            metavar="FRAMEWORK",
            help="Print what pip installs for pytorch, tensorflow or mxnet, pinned.",
        ),
    ] = None,
    cpu: Annotated[
        bool, typer.Option("--cpu", help="With --requirements: of a machine without a GPU.")
    ] = False,
    write: Annotated[
        Path | None,
        typer.Option(
            "--write", help="Write the lock to this file, to make your own.", callback=writable
        ),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Show which versions belong together, and the source of each.

    Example: gpuyard stack lock --requirements pytorch > requirements.txt
    """
    from gpuyard.deploy.stack.lock import read_lock, requirements_text, shipped_text
    from gpuyard.errors import UserMistake
    from gpuyard.files import read_text, write_text
    from gpuyard.report.answers.stack import lock_answer

    if cpu and requirements is None:
        raise UserMistake("--cpu says for which machine --requirements are; name a framework, too")
    known = read_lock(lock_file)
    if write is not None:
        write_text(write, read_text(lock_file) if lock_file else shipped_text())
    if requirements is not None:
        write_exactly(requirements_text(known, requirements, gpu=not cpu))
        return
    show(lock_answer(known), json_output=json_output)


@app.command()
def install(
    *,
    framework: Annotated[
        list[str] | None,
        typer.Option(
            "--framework",
            help="pytorch, tensorflow or mxnet; may be repeated (default: pytorch).",
        ),
    ] = None,
    no_toolkit: Annotated[
        bool,
        typer.Option("--no-toolkit", help="Leave out CUDA's compiler: frameworks run without it."),
    ] = False,
    docker_user: Annotated[
        list[str] | None,
        typer.Option(
            "--docker-user",
            help="Let this user use Docker, which is as much as being root; may be repeated.",
        ),
    ] = None,
    harden_ssh: Annotated[
        bool, typer.Option("--harden-ssh", help="Let ssh take keys only, and no passwords.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be changed, and change nothing.")
    ] = False,
    lock_file: LockOption = None,
    json_output: JsonOption = False,
) -> None:
    """Bring this machine to the lock: driver, CUDA, frameworks and Docker. A second time changes nothing.

    Example: sudo gpuyard stack install --dry-run
    """
    from gpuyard.deploy.stack.install import Wanted, undo
    from gpuyard.deploy.stack.install import install as bring
    from gpuyard.deploy.stack.lock import read_lock
    from gpuyard.measure.progress import ProgressUpdate
    from gpuyard.report.answers.stack import install_answer

    known = read_lock(lock_file)
    wanted = Wanted(
        tuple(framework or ("pytorch",)), not no_toolkit, harden_ssh, tuple(docker_user or ())
    )
    with progress_bar("Looking at this machine") as tell:
        outcome = bring(known, wanted, lambda what: tell(ProgressUpdate(what)), dry_run=dry_run)
    show(install_answer(outcome, undo(known), dry_run=dry_run), json_output=json_output)


@app.command()
def status(*, lock_file: LockOption = None, json_output: JsonOption = False) -> None:
    """Say what on this machine differs from the lock, and why it matters; exits 1 where something does.

    Example: gpuyard stack status
    """
    from gpuyard.deploy.stack.collect import collect
    from gpuyard.deploy.stack.install import undo
    from gpuyard.deploy.stack.lock import read_lock
    from gpuyard.deploy.stack.status import compare
    from gpuyard.report.answers.stack import status_answer

    known = read_lock(lock_file)
    with progress_bar("Looking at this machine"):
        findings = compare(known, collect(known))
    show(status_answer(known, findings, undo(known)), json_output=json_output)
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)


@app.command()
def dockerfile(
    *,
    framework: Annotated[
        str, typer.Option("--framework", help="pytorch, tensorflow or mxnet.")
    ] = "pytorch",
    base: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="debian|ubuntu|cuda",
            help="What it starts from: Debian 12, Ubuntu 24.04, or NVIDIA's image with CUDA's compiler.",
        ),
    ] = "debian",
    cpu: Annotated[bool, typer.Option("--cpu", help="For machines without a GPU.")] = False,
    lock_file: LockOption = None,
) -> None:
    """Print a Dockerfile with the same versions, for those who prefer containers.

    Example: gpuyard stack dockerfile | docker build --tag pytorch -
    """
    from gpuyard.deploy.stack.dockerfile import dockerfile as written
    from gpuyard.deploy.stack.lock import read_lock

    write_exactly(written(read_lock(lock_file), framework, base=base, gpu=not cpu))
