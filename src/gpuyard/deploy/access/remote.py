"""Run commands on a deployment's machines over ssh."""

import getpass
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from gpuyard.deploy.access.host_keys import host_key_error
from gpuyard.deploy.deployment import LoadedDeployment
from gpuyard.deploy.state import Host, StateDirectory
from gpuyard.errors import GpuyardError, UnknownName

_TIMEOUT_SECONDS = 60.0


class HasState(Protocol):
    """Anything that has the state directory of a deployment, whose ssh configuration reaches its machines."""

    @property
    def state(self) -> StateDirectory: ...


def require_hosts(loaded: LoadedDeployment, file: Path) -> tuple[Host, ...]:
    """Return the machines, of which the first is the head. Raises if the deployment is not up."""
    hosts = loaded.state.hosts()
    if not hosts:
        raise GpuyardError(
            f"{loaded.deployment.name} is not up; bring it up with: gpuyard deploy up {file}"
        )
    return hosts


def ssh_argv(loaded: HasState, host: Host, *options: str) -> tuple[str, ...]:
    """Return the ssh command that precedes a shell command for this machine; it never prompts."""
    config = ("-F", str(loaded.state.ssh_config), "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
    return ("ssh", *config, *options, "--", host.name)


def run_remote(
    loaded: HasState, host: Host, command: str, stdin: str = "", options: Sequence[str] = ()
) -> str:
    """Run a shell command and return its output. Raises with the last line of its errors."""
    try:
        done = subprocess.run(
            (*ssh_argv(loaded, host, *options), command),
            input=stdin,
            capture_output=True,
            text=True,
            errors="surrogateescape",  # file names may have any bytes
            check=False,
            timeout=_TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise GpuyardError(
            f"{host.name} ({host.address}) did not answer within {_TIMEOUT_SECONDS:.0f} s"
        ) from None
    if done.returncode != 0:
        if error := host_key_error(loaded.state, done.stderr):
            raise error
        raise GpuyardError(f"{host.name} ({host.address}): {last_line(done.stderr)}")
    return done.stdout


def as_user(user: str | None, command: str) -> str:
    """Return the shell command that runs a command as this user; None stands for the user who logs in.

    It never asks for a password: root needs none, and others need sudo without one.
    """
    if user is None:
        return command
    quoted = shlex.quote(command)
    return (
        f'cd / && if [ "$(id -u)" = 0 ]; then runuser -u {user} -- sh -c {quoted}; '
        f"else sudo -n -u {user} -- sh -c {quoted}; fi"
    )


def as_root_if_possible(command: str) -> str:
    """Return the shell command that runs a command as root if that needs no password, otherwise as the login user."""
    quoted = shlex.quote(command)
    return (
        f'if [ "$(id -u)" != 0 ] && sudo -n true 2>/dev/null; then sudo -n sh -c {quoted}; '
        f"else sh -c {quoted}; fi"
    )


def choose_person(loaded: LoadedDeployment, name: str | None) -> str | None:
    """Return the person of the deployment file whom files belong to, or None for the user who logs in.

    Without a name, it is the person with the caller's user name, or the only person.
    """
    people = [user.name for user in loaded.deployment.users]
    if name is None:
        own = getpass.getuser()
        return own if own in people else people[0] if len(people) == 1 else None
    if name not in people:
        raise UnknownName("user", name, people)
    return name


def last_line(text: str) -> str:
    """Return the last line of a program's output, shortened for an error message."""
    lines = text.strip().splitlines()
    return lines[-1][:300] if lines else "no output"
