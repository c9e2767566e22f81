"""The Jupyter that a user has: where it is, how it is started, and what it says of itself."""

import http.client
import json
import os
import shutil
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuyard.errors import MissingRequirement, UserMistake
from gpuyard.web_client import opener, read_json

_MODULES = ("jupyterlab", "jupyter_server")  # the second has no pages, but serves notebooks
# The directory that a user stands in has no say in what is run: -P does this from Python 3.11 on, and theirs may be older.
_NOT_FROM_HERE = "import sys; sys.path[:] = [p for p in sys.path if p]; "
_LOOK = (
    _NOT_FROM_HERE + "import importlib.util as u; "
    "sys.stdout.write(' '.join(n for n in sys.argv[1:] if u.find_spec(n)))"
)
_RUN = _NOT_FROM_HERE + "import runpy; runpy.run_module({!r}, run_name='__main__', alter_sys=True)"
_LOOK_SECONDS = 30.0
_ANSWER_SECONDS = 5.0
_MOST_ANSWER_BYTES = 1_000_000


def jupyter_command(environment: str | None) -> list[str]:
    """How the user's own is started; without one, a sentence with the line that installs it."""
    if environment is not None:
        python = _python_of(environment)
        found = _in(python)
        if found is None:
            raise _missing(python)
        return found
    active = [os.environ.get(name) for name in ("VIRTUAL_ENV", "CONDA_PREFIX")]
    pythons = [f"{prefix}/bin/python" for prefix in active if prefix]
    for python in pythons:
        found = _in(python)
        if found is not None:
            return found
    program = shutil.which("jupyter-lab")
    if program is not None:
        return [program]
    others = [name for name in map(shutil.which, ("python3", "python")) if name]
    for python in (*others, sys.executable):
        found = _in(python)
        if found is not None:
            return found
    raise _missing([*pythons, *others, sys.executable][0])


def _python_of(environment: str) -> str:
    """A directory of an environment, or its Python."""
    given = Path(environment).expanduser()
    python = given / "bin" / "python" if given.is_dir() else given
    found = shutil.which(str(python)) or shutil.which(environment)
    if found is None:
        raise UserMistake(
            f"there is no Python in {environment!r}; name an environment's directory or its Python"
        )
    return str(Path(found).absolute())  # not resolved: that would leave the environment


def _in(python: str) -> list[str] | None:
    try:
        said = subprocess.run(
            [python, "-c", _LOOK, *_MODULES],
            capture_output=True,
            text=True,
            check=False,
            timeout=_LOOK_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    names = said.stdout.split()
    return [python, "-c", _RUN.format(names[0])] if said.returncode == 0 and names else None


def _missing(python: str) -> MissingRequirement:
    return MissingRequirement(
        f"there is no JupyterLab in your environment; install it with: {python} -m pip install jupyterlab "
        "(or name the environment that has it with --python)"
    )


def options(port: int, directory: Path) -> list[str]:
    """What is nobody's secret; the token is in a file."""
    words = [
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0",
        "--ServerApp.open_browser=False",
        f"--ServerApp.root_dir={directory}",
        "--ServerApp.answer_yes=True",  # Ctrl-C ends it without a question
    ]
    return [*words, "--ServerApp.allow_root=True"] if os.geteuid() == 0 else words


def configuration(token: str) -> str:
    """A file that is read after the user's own, so that no setting of theirs opens the server to everybody."""
    identity = {"token": token}
    return json.dumps({"IdentityProvider": identity, "PasswordIdentityProvider": identity}) + "\n"


@dataclass(frozen=True)
class JupyterServer:
    """One that runs."""

    port: int
    token: str

    def status(self) -> dict[str, Any] | None:
        """None: it does not answer, or not to this token. Looking is no activity."""
        found = self._get("/api/status?no_track_activity=1", self.token)
        return found if isinstance(found, dict) else None

    def is_busy(self) -> bool:
        """A kernel computes."""
        kernels = self._get("/api/kernels?no_track_activity=1", self.token)
        return isinstance(kernels, list) and any(
            isinstance(kernel, dict) and kernel.get("execution_state") == "busy"
            for kernel in kernels
        )

    def is_open(self) -> bool:
        """Whether it answers without the token, as it must not."""
        return self._get("/api/kernels", None) is not None

    def _get(self, path: str, token: str | None) -> Any:
        headers = {"Authorization": f"token {token}"} if token else {}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", headers=headers)
        try:
            # never by a proxy, and not on to where a redirect leads: the token goes to this server alone
            with opener(proxies=False).open(request, timeout=_ANSWER_SECONDS) as answer:
                return read_json(answer, _MOST_ANSWER_BYTES)
        except (OSError, ValueError, http.client.HTTPException):
            return None
