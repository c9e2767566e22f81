"""A command on one of a deployment's machines, from the machine of whoever works there."""

import subprocess
from pathlib import Path

from gpuyard.deploy.deployment import Opened
from gpuyard.deploy.state import Host
from gpuyard.errors import GpuyardError

_SECONDS = 60.0


def hosts_of(opened: Opened, file: Path) -> tuple[Host, ...]:
    """Those that are up, the head first. Raises where none is."""
    hosts = opened.state.hosts()
    if not hosts:
        raise GpuyardError(
            f"{opened.deployment.name} is not up; bring it up with: gpuyard deploy up {file}"
        )
    return hosts


def ssh_argv(opened: Opened, host: Host, *options: str) -> tuple[str, ...]:
    """What goes before a line for that machine's shell; it never asks anything."""
    told = ("-F", str(opened.state.ssh_config), "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
    return ("ssh", *told, *options, "--", host.name)


def run_there(opened: Opened, host: Host, line: str, given: str = "") -> str:
    """What a line for its shell has printed. Raises with what went wrong there."""
    try:
        done = subprocess.run(
            (*ssh_argv(opened, host), line),
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise GpuyardError(
            f"{host.name} ({host.address}) did not answer in {_SECONDS:.0f} s"
        ) from None
    if done.returncode != 0:
        raise GpuyardError(f"{host.name} ({host.address}): {last_line(done.stderr)}")
    return done.stdout


def last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:300] if lines else "it ended without a word"
