"""Run a command on another machine until it ends or the connection closes.

`python -m gpuyard.run.attached ADDRESS COMMAND…` uses stdin as the connection. When stdin closes, it stops the command
and all of its processes: first with SIGTERM, so that they can write a checkpoint, then with SIGKILL.
"""

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import psutil

STOP_SECONDS = 10.0
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126  # the statuses of a shell


def main(arguments: Sequence[str]) -> None:
    """Run the command, and exit with its status; after a signal, with the status that a shell would report."""
    address, *argv = arguments
    environment = build_environment(address)
    try:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, env=environment, start_new_session=True
        )
    except OSError as error:
        sys.stderr.write(f"gpuyard: cannot start {argv[0]}: {error.strerror}\n")
        sys.exit(_NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE)
    stopping = threading.Event()
    watcher = threading.Thread(target=_stop_when_closed, args=(process, stopping), daemon=True)
    watcher.start()
    status = process.wait()
    if stopping.is_set():
        watcher.join()
    os._exit(status if status >= 0 else 128 - status)  # the watcher may still wait for stdin


def build_environment(address: str) -> dict[str, str]:
    """Return the environment of the command: the programs next to this Python come first.

    gloo otherwise uses the address of the host's name, which on many systems is a loopback address.
    """
    programs = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{programs}:{os.environ.get('PATH', os.defpath)}"}
    environment.pop("PYTHONPATH", None)  # gpuyard's own
    interface = find_interface(address)
    if interface is not None:
        environment.setdefault("GLOO_SOCKET_IFNAME", interface)
    return environment


def find_interface(address: str) -> str | None:
    """Return the network interface of this machine that has this address or host name, or None."""
    try:
        own_addresses = {entry[4][0] for entry in socket.getaddrinfo(address, None)}
    except OSError:
        return None
    for name, addresses in psutil.net_if_addrs().items():
        if any(own.address in own_addresses for own in addresses):
            return name
    return None


def _stop_when_closed(process: "subprocess.Popen[bytes]", stopping: threading.Event) -> None:
    while os.read(0, 4096):
        pass
    stopping.set()
    # torchrun's ranks have their own sessions, so they are found as descendants
    processes = _list_processes(process.pid)
    for each in processes[:1]:  # torchrun passes the signal on, and reports it
        with contextlib.suppress(psutil.Error):
            each.terminate()
    _, alive = psutil.wait_procs(processes, timeout=STOP_SECONDS)
    for each in {*alive, *_list_processes(process.pid)}:
        with contextlib.suppress(psutil.Error):
            each.kill()


def _list_processes(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


if __name__ == "__main__":
    main(sys.argv[1:])
