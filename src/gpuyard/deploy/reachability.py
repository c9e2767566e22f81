"""Ask existing machines over ssh whether they answer, without changing anything here or there."""

import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gpuyard.deploy.state import Host, StateDirectory

_MAX_THREADS = 16
_CONNECT_SECONDS = 10
_TIMEOUT_SECONDS = 60.0
# Nothing is sent to the machine, so its host key does not matter yet; `up` and `verify` check it.
_OPTIONS = (
    *("-o", "BatchMode=yes", "-o", f"ConnectTimeout={_CONNECT_SECONDS}"),
    *("-o", "ConnectionAttempts=1", "-o", "LogLevel=ERROR"),
    *("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"),
)


def find_unreachable(state: StateDirectory, hosts: Sequence[Host]) -> dict[str, str]:
    """Return the reason by machine that ssh cannot log in to."""
    if not hosts:
        return {}
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory) / "ssh_config"
        config.write_text(state.render_ssh_config(tuple(hosts)), encoding="utf-8")
        with ThreadPoolExecutor(min(_MAX_THREADS, len(hosts))) as pool:
            reasons = list(pool.map(lambda host: _try_login(config, host), hosts))
    return {host.name: reason for host, reason in zip(hosts, reasons, strict=True) if reason}


def _try_login(config: Path, host: Host) -> str:
    argv = ("ssh", "-F", str(config), *_OPTIONS, "--", host.name, "true")
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {_TIMEOUT_SECONDS:.0f} s"
    except FileNotFoundError:
        return "ssh is not installed on this machine"
    lines = done.stderr.strip().splitlines()
    return "" if done.returncode == 0 else lines[-1][:200] if lines else "ssh failed"
