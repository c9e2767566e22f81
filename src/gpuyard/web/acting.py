"""Actions of a user: gpuyard's own commands, run in a process of that user and never as the server."""

import contextlib
import os
import pwd
import shlex
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuyard.errors import GpuyardError
from gpuyard.interpreter import import_path, module_argv
from gpuyard.printable import make_printable
from gpuyard.web.auth import Identity

_SECONDS = 60.0
_START_SECONDS = 3.0  # after which a command that waits for GPUs has been accepted
_MAX_OUTPUT = 2_000_000
_PASSED_ON = ("GPUYARD_SHARE_DIR", "LANG", "SLURM_CONF", "TZ")
_background: list["subprocess.Popen[bytes]"] = []


class NotPermitted(GpuyardError):
    """Raised if a user may not do or see something here."""


@dataclass(frozen=True)
class Action:
    """A gpuyard command line; a `background` one continues after the answer."""

    argv: tuple[str, ...]
    background: bool = False
    module: str = "gpuyard"
    """The module that Python runs."""

    @property
    def line(self) -> str:
        """The command line that does the same in a terminal."""
        return shlex.join(("gpuyard", *self.argv))


@dataclass(frozen=True)
class Outcome:
    """The result of an action."""

    status: int
    output: str
    errors: str

    @property
    def ok(self) -> bool:
        return self.status == 0


def why_not(identity: Identity) -> str:
    """Return why the server cannot act as this user; empty: it can."""
    if identity.is_own or os.geteuid() == 0:
        return ""
    return (
        f"this server runs as another user than {identity.user} and may not act as {identity.user}; run the command "
        "yourself, or let root start gpuyard serve"
    )


def perform(identity: Identity, action: Action, *, seconds: float = _SECONDS) -> Outcome:
    """Run the command as the user, in the user's home, and return what it printed."""
    if reason := why_not(identity):
        raise NotPermitted(reason)
    options = _process_options(identity)
    argv = (*module_argv(action.module), *action.argv)
    if action.background:
        return _start(argv, options)
    try:
        done = subprocess.run(argv, capture_output=True, check=False, timeout=seconds, **options)
    except subprocess.TimeoutExpired:
        raise GpuyardError(f"{action.line} did not finish within {seconds:.0f} s") from None
    except OSError as error:
        raise GpuyardError(f"{action.line} cannot be started: {error.strerror}") from error
    return Outcome(done.returncode, _decode(done.stdout), _decode(done.stderr))


def start_stream(identity: Identity, action: Action) -> "subprocess.Popen[bytes]":
    """Start a command whose output is read while it runs; the caller ends it."""
    if reason := why_not(identity):
        raise NotPermitted(reason)
    return subprocess.Popen(
        (*module_argv("gpuyard"), *action.argv),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        **_process_options(identity),
    )


def _start(argv: tuple[str, ...], options: dict[str, Any]) -> Outcome:
    """Start a command that outlives the server; report an error if it fails at once."""
    _background[:] = [process for process in _background if process.poll() is None]
    with tempfile.TemporaryFile() as messages:
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=messages, **options)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_START_SECONDS)
        messages.seek(0)
        errors = _decode(messages.read(_MAX_OUTPUT))
    if process.poll() is None:
        _background.append(process)
        return Outcome(0, "", errors)
    return Outcome(process.returncode, "", errors)


def _process_options(identity: Identity) -> dict[str, Any]:
    """Return the account, environment, and directory of the process."""
    options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "start_new_session": True}
    if identity.is_own:
        home = os.path.expanduser("~")  # noqa: PTH111 - without one it is "~", not an error
        environment = {**os.environ, **import_path()}
        return {**options, "env": environment, "cwd": home if Path(home).is_dir() else "/"}
    try:
        account = pwd.getpwuid(identity.uid)
    except KeyError:
        raise NotPermitted(f"the user {identity.user} has no account here") from None
    environment = {
        **{name: os.environ[name] for name in _PASSED_ON if name in os.environ},
        **import_path(),
        "HOME": account.pw_dir,
        "USER": account.pw_name,
        "LOGNAME": account.pw_name,
        "SHELL": account.pw_shell or "/bin/sh",
        "PATH": "/usr/local/bin:/usr/bin:/bin",
    }
    home = account.pw_dir if Path(account.pw_dir).is_dir() else "/"
    return {
        **options,
        "env": environment,
        "cwd": home,
        "user": account.pw_uid,
        "group": account.pw_gid,
        "extra_groups": os.getgrouplist(account.pw_name, account.pw_gid),
        "umask": 0o077,
    }


def _decode(output: bytes) -> str:
    return make_printable(output[:_MAX_OUTPUT].decode(errors="replace"))
