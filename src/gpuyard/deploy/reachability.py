"""Ask existing machines over ssh whether they answer, without changing anything here or there."""

import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gpuyard.deploy.access.host_keys import try_login
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
            reasons = list(pool.map(lambda host: _find_reason(config, host), hosts))
    return {host.name: reason for host, reason in zip(hosts, reasons, strict=True) if reason}


def _find_reason(config: Path, host: Host) -> str:
    try:
        done = try_login(config, host, _OPTIONS, _TIMEOUT_SECONDS)
    except FileNotFoundError:
        return "ssh is not installed on this machine"
    if done is None:
        return f"no answer within {_TIMEOUT_SECONDS:.0f} s"
    lines = done.stderr.strip().splitlines()
    return "" if done.returncode == 0 else lines[-1][:200] if lines else "ssh failed"
