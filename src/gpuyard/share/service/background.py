"""Starting the service so that it outlives the command: by systemd where that runs, else as a process of its own."""

import os
import subprocess
import time
from pathlib import Path

from gpuyard.errors import GpuyardError
from gpuyard.files import write_text
from gpuyard.interpreter import import_path, module_argv
from gpuyard.run.process import Command, start_apart
from gpuyard.share.service.service import is_running
from gpuyard.share.store.config import MACHINE

_UNIT = Path("/etc/systemd/system/gpuyard-share.service")
_SYSTEMD_RUNS = Path("/run/systemd/system")
_LOG = "service.log"
_START_SECONDS = 20.0
_SERVE = (*module_argv("gpuyard"), "share", "serve")


def unit_text(directory: Path) -> str:
    """What systemd is told."""
    return f"""[Unit]
Description=gpuyard: leases of this machine's GPUs

[Service]
Environment=GPUYARD_SHARE_DIR={directory}
ExecStart={" ".join(_SERVE)}
Restart=always
RestartSec=1
# leased commands are the users' own processes; nothing of theirs ends with the service
KillMode=process

[Install]
WantedBy=multi-user.target
"""


def start_service(directory: Path) -> str:
    """Start it unless it answers already; a sentence that says how it runs."""
    if is_running(directory):
        return "The lease service runs already."
    if directory == MACHINE and _SYSTEMD_RUNS.is_dir():
        write_text(_UNIT, unit_text(directory), mode=0o644)
        for command in (("daemon-reload",), ("enable", "--now", _UNIT.name)):
            subprocess.run(("systemctl", *command), check=False)  # noqa: S607 - root's own path
        how = f"The lease service is run by systemd ({_UNIT.name})."
    else:
        _start_process(directory)
        how = "The lease service runs in the background until the machine restarts."
    deadline = time.monotonic() + _START_SECONDS
    while not is_running(directory):
        if time.monotonic() > deadline:
            raise GpuyardError(
                f"the lease service did not start; {directory / _LOG} or `systemctl status` says why"
            )
        time.sleep(0.05)
    return how


def _start_process(directory: Path) -> None:
    environment = {**import_path(), "GPUYARD_SHARE_DIR": str(directory)}
    log = os.open(
        directory / _LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, mode=0o600
    )
    try:
        start_apart(Command("here", _SERVE, environment), output=log)
    finally:
        os.close(log)
