"""Open the head's JupyterLab on this machine through an ssh tunnel, with the token that the head generated."""

import contextlib
import http.client
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from gpuyard.deploy.access.remote import last_line, run_remote, ssh_argv
from gpuyard.deploy.deployment import LoadedDeployment
from gpuyard.deploy.state import Host
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.loopback_port import PortRelay
from gpuyard.temporary import shared_directory, temporary_directory
from gpuyard.web_client import call_within

PORT = 8888
"""JupyterLab's port on the head's loopback address."""
HUB_PORT = 8000
TOKEN_FILE = "/etc/gpuyard/jupyter_token"  # noqa: S105 - a path
_READY_SECONDS = 30.0
_ANSWER_SECONDS = 5.0
_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Tunnel:
    """An open tunnel, which closes when its process ends."""

    address: str
    process: subprocess.Popen[bytes]
    errors: IO[bytes]
    closed: threading.Event = field(default_factory=threading.Event)

    def close(self) -> None:
        """Close the tunnel, which ends `wait`; a signal handler may call this."""
        self.closed.set()
        self.process.terminate()

    def wait(self) -> None:
        """Wait until the tunnel is closed. Raises if the connection closes by itself."""
        self.process.wait()
        if self.closed.is_set():
            return
        self.errors.seek(0)
        reason = last_line(self.errors.read().decode(errors="replace"))
        raise GpuyardError(f"the tunnel to JupyterLab closed: {reason}")


@contextlib.contextmanager
def open_notebook(loaded: LoadedDeployment, head: Host, port: int | None) -> Iterator[Tunnel]:
    """Open a tunnel and wait until JupyterLab answers. The token comes over ssh, and is never on a command line."""
    if "jupyter" not in loaded.deployment.head:
        raise UserMistake(
            f"the head of {loaded.deployment.name} has no JupyterLab; add jupyter to 'head', and run `gpuyard deploy up`"
        )
    if len(getattr(loaded.deployment, "users", ())) > 1:
        raise UserMistake(
            f"several people share {loaded.deployment.name}, and each has their own notebook and token; "
            f"log in with ssh -L {HUB_PORT}:127.0.0.1:{HUB_PORT}, and use the token in ~/.jupyter_token there"
        )
    # The token file belongs to the account that JupyterLab runs as.
    command = f"cat {TOKEN_FILE} 2>/dev/null || sudo -n cat {TOKEN_FILE}"
    token = run_remote(loaded, head, command).strip()
    with (
        tempfile.TemporaryFile() as errors,
        temporary_directory(shared_directory(), "notebook") as directory,
    ):
        relay = _open_port(directory / "tunnel.sock", port)
        forward = f"{directory}/tunnel.sock:127.0.0.1:{PORT}"
        process = subprocess.Popen(
            ssh_argv(loaded, head, "-N", "-L", forward, "-o", "ExitOnForwardFailure=yes"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
        tunnel = Tunnel(f"http://127.0.0.1:{relay.port}/lab?token={token}", process, errors)
        try:
            relay.start()
            _wait_until_ready(tunnel, head, relay.port)
            yield tunnel
        finally:
            process.terminate()
            process.wait()


def _wait_until_ready(tunnel: Tunnel, head: Host, port: int) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while not _answers(port):
        if tunnel.process.poll() is not None:
            tunnel.wait()
        if time.monotonic() > deadline:
            raise GpuyardError(
                f"JupyterLab on {head.name} does not answer; find the reason with: gpuyard deploy verify FILE"
            )
        time.sleep(_POLL_SECONDS)


def _answers(port: int) -> bool:
    """Return whether any HTTP response comes; without the token it is an error status."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_ANSWER_SECONDS)
    try:
        connection.request("GET", "/api")
        call_within(_ANSWER_SECONDS, connection.getresponse)
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return True


def _open_port(target: Path, port: int | None) -> PortRelay:
    """Hold a port on this machine for the tunnel: the given one; otherwise, JupyterLab's own or any free one."""
    for candidate in (PORT, 0) if port is None else (port,):
        with contextlib.suppress(OSError):
            return PortRelay(target, candidate)
    named = "no port" if port is None else f"port {port}"
    raise GpuyardError(f"{named} is free on this machine; choose another one with --port")
