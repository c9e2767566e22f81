"""Run commands on a deployment's machines over ssh."""

import subprocess
from pathlib import Path

from gpuyard.deploy.deployment import LoadedDeployment
from gpuyard.deploy.state import Host
from gpuyard.errors import GpuyardError

_TIMEOUT_SECONDS = 60.0


def require_hosts(loaded: LoadedDeployment, file: Path) -> tuple[Host, ...]:
    """Return the machines, of which the first is the head. Raises if the deployment is not up."""
    hosts = loaded.state.hosts()
    if not hosts:
        raise GpuyardError(
            f"{loaded.deployment.name} is not up; bring it up with: gpuyard deploy up {file}"
        )
    return hosts


def ssh_argv(loaded: LoadedDeployment, host: Host, *options: str) -> tuple[str, ...]:
    """Return the ssh command that precedes a shell command for this machine; it never prompts."""
    config = ("-F", str(loaded.state.ssh_config), "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
    return ("ssh", *config, *options, "--", host.name)


def run_remote(loaded: LoadedDeployment, host: Host, command: str, stdin: str = "") -> str:
    """Run a shell command and return its output. Raises with the last line of its errors."""
    try:
        done = subprocess.run(
            (*ssh_argv(loaded, host), command),
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise GpuyardError(
            f"{host.name} ({host.address}) did not answer within {_TIMEOUT_SECONDS:.0f} s"
        ) from None
    if done.returncode != 0:
        raise GpuyardError(f"{host.name} ({host.address}): {last_line(done.stderr)}")
    return done.stdout


def last_line(text: str) -> str:
    """Return the last line of a program's output, shortened for an error message."""
    lines = text.strip().splitlines()
    return lines[-1][:300] if lines else "no output"
