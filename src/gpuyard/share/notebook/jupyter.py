"""The user's own Jupyter: find it, start it, and query its server."""

import contextlib
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuyard.errors import MissingRequirement, UserMistake
from gpuyard.files import expand_home
from gpuyard.web_client import call_within, read_json

_MODULES = (
    "jupyterlab",
    "jupyter_server",
)  # the second has no user interface, but serves notebooks
# Never import from the current directory. Python 3.11 has -P for this, but the user's Python may be older.
_SAFE_PATH = "import sys; sys.path[:] = [p for p in sys.path if p]; "
_FIND = (
    _SAFE_PATH + "import importlib.util as u; "
    "sys.stdout.write(' '.join(n for n in sys.argv[1:] if u.find_spec(n)))"
)
# Print "pip" if pip can install into this Python, and "venv" if it can create an environment.
_FIND_INSTALLER = (
    _SAFE_PATH + "import importlib.util as u, os, sysconfig as s; "
    "paths = s.get_paths(); "
    "managed = sys.prefix == sys.base_prefix and "
    "os.path.exists(paths['stdlib'] + '/EXTERNALLY-MANAGED'); "
    "sys.stdout.write('pip ' * bool(u.find_spec('pip') and not managed and os.access(paths['purelib'], os.W_OK)) "
    "+ 'venv' * bool(u.find_spec('venv') and u.find_spec('ensurepip')))"
)
_NEW_ENVIRONMENT = "~/jupyter"
_RUN = _SAFE_PATH + "import runpy; runpy.run_module({!r}, run_name='__main__', alter_sys=True)"
_FIND_SECONDS = 30.0
_ANSWER_SECONDS = 5.0
_MAX_ANSWER_BYTES = 1_000_000


def find_command(environment: str | None) -> list[str]:
    """Return the command that starts the user's own Jupyter; raise MissingRequirement with the line that installs it."""
    if environment is not None:
        python = _find_python(environment)
        command = _find_in(python)
        if command is None:
            raise _missing([python])
        return command
    active = [os.environ.get(name) for name in ("VIRTUAL_ENV", "CONDA_PREFIX")]
    pythons = [f"{prefix}/bin/python" for prefix in active if prefix]
    for python in pythons:
        if command := _find_in(python):
            return command
    program = shutil.which("jupyter-lab")
    if program is not None:
        return [program]
    others = [name for name in map(shutil.which, ("python3", "python")) if name]
    for python in (*others, sys.executable):
        if command := _find_in(python):
            return command
    raise _missing([*pythons, *others, sys.executable])


def _find_python(environment: str) -> str:
    """Return the Python of an environment, given its directory or its Python."""
    path = expand_home(environment)
    python = path / "bin" / "python" if path.is_dir() else path
    program = shutil.which(str(python)) or shutil.which(environment)
    if program is None:
        raise UserMistake(
            f"Python not found in {environment!r}; name the directory of an environment or its Python"
        )
    return str(Path(program).absolute())  # not resolved: that would leave the environment


def _find_in(python: str) -> list[str] | None:
    """Return the command that starts Jupyter with this Python, or None if it has no Jupyter."""
    names = _ask_python(python, _FIND, *_MODULES)
    return [python, "-c", _RUN.format(names[0])] if names else None


def _ask_python(python: str, program: str, *arguments: str) -> list[str]:
    """Run a short program with another Python, and return the words that it prints; none if it fails."""
    try:
        result = subprocess.run(
            [python, "-c", program, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=_FIND_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return result.stdout.split() if result.returncode == 0 else []


def _missing(pythons: list[str]) -> MissingRequirement:
    """Return the error with a command that works here: many Pythons lack pip, or do not let users install packages."""
    installers = {python: _ask_python(python, _FIND_INSTALLER) for python in pythons}
    with_pip = [python for python in pythons if "pip" in installers[python]]
    with_venv = [python for python in pythons if "venv" in installers[python]]
    if with_pip:
        fix = f"install it with: {with_pip[0]} -m pip install jupyterlab"
    elif with_venv:
        fix = (
            f"install it with: {with_venv[0]} -m venv {_NEW_ENVIRONMENT} && {_NEW_ENVIRONMENT}/bin/pip install "
            f"jupyterlab; then add --python {_NEW_ENVIRONMENT}"
        )
    else:
        fix = "ask the administrator to install it: no Python here has pip or venv"
    return MissingRequirement(
        f"JupyterLab not found in your environment; {fix} (or name the environment that has it with --python)"
    )


def format_options(socket_path: Path, directory: Path) -> list[str]:
    """Return the command-line options, which other users can see; the token is in a private file."""
    options = [
        f"--ServerApp.sock={socket_path}",
        "--ServerApp.sock_mode=0600",
        "--ServerApp.port=8888",  # Jupyter rejects a socket together with another port
        "--ServerApp.open_browser=False",
        f"--ServerApp.root_dir={directory}",
        "--ServerApp.answer_yes=True",  # Ctrl-C stops it without a question
    ]
    return [*options, "--ServerApp.allow_root=True"] if os.geteuid() == 0 else options


def format_configuration(token: str) -> str:
    """Return a configuration that overrides the user's own, so that none of its settings opens the server to everyone."""
    identity = {"token": token}
    return json.dumps({"IdentityProvider": identity, "PasswordIdentityProvider": identity}) + "\n"


class _UnixConnection(http.client.HTTPConnection):
    """An HTTP connection over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("127.0.0.1", timeout=_ANSWER_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


@dataclass(frozen=True)
class JupyterServer:
    """A running Jupyter server, which listens on a Unix socket in a directory that only this user can enter."""

    socket_path: Path
    token: str

    def status(self) -> dict[str, Any] | None:
        """Return the server's status, or None if it does not answer to this token. The query counts as no activity."""
        status = self._get("/api/status?no_track_activity=1", self.token)
        return status if isinstance(status, dict) else None

    def is_busy(self) -> bool:
        """Return whether a kernel is computing."""
        kernels = self._get("/api/kernels?no_track_activity=1", self.token)
        return isinstance(kernels, list) and any(
            isinstance(kernel, dict) and kernel.get("execution_state") == "busy"
            for kernel in kernels
        )

    def is_open(self) -> bool:
        """Return whether the server answers without the token, which it must not."""
        return self._get("/api/kernels", None) is not None

    def _get(self, path: str, token: str | None) -> Any:
        headers = {"Authorization": f"token {token}"} if token else {}

        def receive() -> Any:
            with contextlib.closing(_UnixConnection(self.socket_path)) as connection:
                connection.request("GET", path, headers=headers)
                with connection.getresponse() as answer:
                    return read_json(answer, _MAX_ANSWER_BYTES) if answer.status == 200 else None

        try:
            return call_within(_ANSWER_SECONDS, receive)
        except (OSError, ValueError, http.client.HTTPException):
            return None
