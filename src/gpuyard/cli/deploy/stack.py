"""`gpuyard stack`: the same driver, CUDA, frameworks, and containers on every machine."""

from pathlib import Path
from typing import Annotated

import typer

from gpuyard.choices import BaseImage, Framework
from gpuyard.cli.deploy.options import report_progress
from gpuyard.cli.output import JsonOption, check_output_file, progress_bar, show, write_verbatim

app = typer.Typer(
    help="Install the same driver, CUDA, frameworks, and containers on every machine.",
    no_args_is_help=True,
)
LockOption = Annotated[
    Path | None,
    typer.Option("--lock", help="Your own lock file (default: the one that ships with gpuyard)."),
]


@app.callback()
def stack() -> None:
    """Install the same driver, CUDA, frameworks, and containers on every machine."""


@app.command()
def lock(
    *,
    lock_file: LockOption = None,
    requirements: Annotated[
        Framework | None,
        typer.Option(
            "--requirements", help="Framework whose pinned pip requirements are printed instead."
        ),
    ] = None,
    cpu: Annotated[
        bool, typer.Option("--cpu-only", help="With --requirements: for a machine without a GPU.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            help="File to write the lock to, as a start for your own.",
            callback=check_output_file,
        ),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Show the compatible versions, and the source of each.

    Example: gpuyard stack lock --requirements pytorch > requirements.txt
    """
    from gpuyard.deploy.stack.lock import read_lock, read_shipped_text, render_requirements
    from gpuyard.errors import UserMistake
    from gpuyard.files import read_text, write_text
    from gpuyard.report.answers.stack import lock_answer

    if cpu and requirements is None:
        raise UserMistake("--cpu-only needs --requirements FRAMEWORK")
    stack_lock = read_lock(lock_file)
    if output is not None:
        write_text(output, read_text(lock_file) if lock_file else read_shipped_text())
    if requirements is not None:
        write_verbatim(render_requirements(stack_lock, requirements, gpu=not cpu))
        return
    show(lock_answer(stack_lock), json_output=json_output)


@app.command()
def install(
    *,
    framework: Annotated[
        list[Framework] | None,
        typer.Option("--framework", help="Framework; repeatable (default: pytorch)."),
    ] = None,
    no_toolkit: Annotated[
        bool,
        typer.Option("--no-toolkit", help="Skip CUDA's compiler; frameworks run without it."),
    ] = False,
    docker_user: Annotated[
        list[str] | None,
        typer.Option(
            "--docker-user",
            metavar="NAME",
            help="User who may use Docker, which is equivalent to root access; repeatable.",
        ),
    ] = None,
    harden_ssh: Annotated[
        bool, typer.Option("--harden-ssh", help="Allow only keys for ssh, not passwords.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change, without changing it.")
    ] = False,
    lock_file: LockOption = None,
    json_output: JsonOption = False,
) -> None:
    """Install the lock's driver, CUDA, frameworks, and Docker on this machine. Repeating it changes nothing.

    Example: sudo gpuyard stack install --dry-run
    """
    from gpuyard.deploy.stack.install import InstallOptions, list_environments, list_undo_commands
    from gpuyard.deploy.stack.install import install as install_stack
    from gpuyard.deploy.stack.lock import read_lock
    from gpuyard.report.answers.stack import install_answer

    stack_lock = read_lock(lock_file)
    options = InstallOptions(
        tuple(framework or ("pytorch",)), not no_toolkit, harden_ssh, tuple(docker_user or ())
    )
    with report_progress("Inspecting this machine") as report:
        recap = install_stack(stack_lock, options, report, dry_run=dry_run)
    answer = install_answer(
        recap, list_undo_commands(stack_lock), list_environments(stack_lock), dry_run=dry_run
    )
    show(answer, json_output=json_output)


@app.command()
def status(*, lock_file: LockOption = None, json_output: JsonOption = False) -> None:
    """Show how this machine differs from the lock, and why it matters; exits with status 1 if it does.

    Example: gpuyard stack status
    """
    from gpuyard.deploy.stack.collect import collect_facts
    from gpuyard.deploy.stack.install import list_environments, list_undo_commands
    from gpuyard.deploy.stack.lock import read_lock
    from gpuyard.deploy.stack.status import compare
    from gpuyard.report.answers.stack import status_answer

    stack_lock = read_lock(lock_file)
    with progress_bar("Inspecting this machine"):
        findings = compare(stack_lock, collect_facts(stack_lock))
    answer = status_answer(
        stack_lock, findings, list_undo_commands(stack_lock), list_environments(stack_lock)
    )
    show(answer, json_output=json_output)
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)


@app.command()
def dockerfile(
    *,
    framework: Annotated[
        Framework, typer.Option("--framework", help="Framework.")
    ] = Framework.PYTORCH,
    base: Annotated[
        BaseImage,
        typer.Option(
            help="Base image: Debian 12, Ubuntu 24.04, or NVIDIA's image with CUDA's compiler.",
        ),
    ] = "debian",
    cpu: Annotated[bool, typer.Option("--cpu-only", help="For machines without a GPU.")] = False,
    lock_file: LockOption = None,
) -> None:
    """Print a Dockerfile with the same versions, for users who prefer containers.

    Example: gpuyard stack dockerfile | docker build --tag pytorch -
    """
    from gpuyard.deploy.stack.dockerfile import render_dockerfile
    from gpuyard.deploy.stack.lock import read_lock

    write_verbatim(render_dockerfile(read_lock(lock_file), framework, base=base, gpu=not cpu))
