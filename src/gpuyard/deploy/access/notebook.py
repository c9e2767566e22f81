"""JupyterLab of the head, on this machine: a tunnel over ssh, and the token that the head has made for it."""

import contextlib
import http.client
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from gpuyard.deploy.access.remote import last_line, run_there, ssh_argv
from gpuyard.deploy.deployment import Opened
from gpuyard.deploy.state import Host
from gpuyard.errors import GpuyardError, UserMistake

PORT = 8888
"""Of the head, on its loopback address."""
HUB_PORT = 8000
TOKEN_FILE = "/etc/gpuyard/jupyter_token"  # noqa: S105 - where it is
_READY_SECONDS = 30.0
_LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class Tunnel:
    """An open one; it ends with its process."""

    address: str
    process: subprocess.Popen[bytes]
    said: IO[bytes]

    def wait(self) -> None:
        """Until it is interrupted. Raises where the connection ends by itself."""
        self.process.wait()
        self.said.seek(0)
        words = last_line(self.said.read().decode(errors="replace"))
        raise GpuyardError(f"the tunnel to JupyterLab has ended: {words}")


@contextlib.contextmanager
def open_notebook(opened: Opened, head: Host, port: int | None) -> Iterator[Tunnel]:
    """A tunnel through which JupyterLab answers. Its token comes over ssh, and is in no command line."""
    if "jupyter" not in opened.deployment.head:
        raise UserMistake(
            f"the head of {opened.deployment.name} has no JupyterLab: add jupyter to 'head', and run `gpuyard deploy up`"
        )
    if len(getattr(opened.deployment, "users", ())) > 1:
        raise UserMistake(
            f"several people share {opened.deployment.name}, each with a notebook and a token of their own: "
            f"log in with ssh -L {HUB_PORT}:127.0.0.1:{HUB_PORT}, and take the token from ~/.jupyter_token there"
        )
    # it belongs to the account that JupyterLab runs as
    read = f"cat {TOKEN_FILE} 2>/dev/null || sudo -n cat {TOKEN_FILE}"
    token = run_there(opened, head, read).strip()
    local = _free_port(PORT) if port is None else port
    forward = ("-N", "-L", f"127.0.0.1:{local}:127.0.0.1:{PORT}", "-o", "ExitOnForwardFailure=yes")
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            ssh_argv(opened, head, *forward),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
        )
        tunnel = Tunnel(f"http://127.0.0.1:{local}/lab?token={token}", process, said)
        try:
            _wait_for_answer(tunnel, head, local)
            yield tunnel
        finally:
            process.terminate()
            process.wait()


def _wait_for_answer(tunnel: Tunnel, head: Host, port: int) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while not _answers(port):
        if tunnel.process.poll() is not None:
            tunnel.wait()
        if time.monotonic() > deadline:
            raise GpuyardError(
                f"JupyterLab on {head.name} does not answer; see what is wrong with: gpuyard deploy verify FILE"
            )
        time.sleep(_LOOK_SECONDS)


def _answers(port: int) -> bool:
    """Whatever it says: without the token it has nothing for us."""
    asked = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        asked.request("GET", "/api")
        asked.getresponse()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        asked.close()
    return True


def _free_port(wanted: int) -> int:
    """That one if nobody has it here, else any."""
    for port in (wanted, 0):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return int(probe.getsockname()[1])
    raise GpuyardError("no port is free on this machine")
