"""The host keys of a deployment's machines.

`up` records each machine's key in the deployment's own `known_hosts`. Every later connection must present that key.
The user's `known_hosts` is read for machines that they already have, and never written.
"""

import base64
import hashlib
import re
import shlex
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from gpuyard import files
from gpuyard.deploy.state import Host, StateDirectory
from gpuyard.errors import GpuyardError
from gpuyard.temporary import shared_directory, temporary_directory

_FAILED = "Host key verification failed"
_CHANGED = re.compile(r"^(?:\S+ )?[Hh]ost key for (\S+) has changed", re.MULTILINE)
_UNKNOWN = re.compile(r"^No \S+ host key is known for (\S+) and you have requested", re.MULTILINE)
_OFFENDING = re.compile(r"^Offending \S+ key in (.+):\d+", re.MULTILINE)
_FINGERPRINT = re.compile(r"^(SHA256:[A-Za-z0-9+/]+)\.?\s*$", re.MULTILINE)
_MAX_THREADS = 16
_SSH_FAILED = 255
_CONNECT_SECONDS = 20
_TIMEOUT_SECONDS = 600.0  # machines that were just created may still boot
_MAX_EXCERPT = 300


@dataclass(frozen=True)
class HostKey:
    """The key that a machine presented."""

    host: Host
    kind: str
    blob: str

    @property
    def line(self) -> str:
        """The line in `known_hosts`."""
        return f"{self.host.known_name} {self.kind} {self.blob}"

    @property
    def fingerprint(self) -> str:
        """The fingerprint, as ssh and `ssh-keygen -l` print it."""
        digest = hashlib.sha256(base64.b64decode(self.blob)).digest()
        return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"

    def __str__(self) -> str:
        return f"{self.host.name} ({self.host.address}) {self.kind} {self.fingerprint}"


class UnknownHostKeys(GpuyardError):
    """Existing machines whose keys neither gpuyard nor the user knows; carries the keys that they presented."""

    def __init__(self, keys: Sequence[HostKey]) -> None:
        self.keys = tuple(keys)
        listed = "; ".join(map(str, keys))
        super().__init__(
            f"these host keys are unknown: {listed}. Compare them with `ssh-keygen -lf` of the machine's "
            "/etc/ssh/ssh_host_*_key.pub; if they are the same, run it again with --accept-new-host-keys"
        )


def record_host_keys(
    state: StateDirectory, hosts: Sequence[Host], accept: Callable[[HostKey], bool]
) -> None:
    """Connect to every machine, and record the keys that are not known yet. The caller must hold the deployment.

    A machine that gpuyard created is trusted at this first contact; `accept` decides about the others. Raises if a key
    has changed, is not accepted, or a machine is unreachable.
    """
    keys = _find_new_keys(state, hosts)
    refused = [key for key in keys if not key.host.is_created and not accept(key)]
    if refused:
        raise UnknownHostKeys(refused)
    if keys:
        lines = _read_lines(state.known_hosts) + [key.line for key in keys]
        files.write_text(state.known_hosts, "".join(f"{line}\n" for line in lines), mode=0o600)


def host_key_error(state: StateDirectory, output: str) -> GpuyardError | None:
    """Return what to do about a host key that ssh refused, from ssh's own output; None if it refused none."""
    if _FAILED not in output:
        return None
    changed, unknown = _CHANGED.search(output), _UNKNOWN.search(output)
    name = (changed or unknown or [""] * 2)[1]
    host = next((host for host in state.hosts() if name in (host.known_name, host.address)), None)
    shown = f"{host.name} ({host.address})" if host else name or "a machine"
    if changed is None:
        return GpuyardError(
            f"the host key of {shown} is unknown; run `gpuyard deploy up` again, which records it"
        )
    presented = _FINGERPRINT.search(output)
    to = f" to {presented[1]}" if presented else ""
    what = f"the host key of {shown} has changed{to}: another machine may answer in its place"
    if host is not None and host.host_key:
        return GpuyardError(
            f"{what}. gpuyard created this machine with the key in {state.known_hosts}; restore that key, or create "
            "the deployment again with `gpuyard deploy down` and `gpuyard deploy up`"
        )
    offending = _OFFENDING.search(output)
    forget = ("ssh-keygen", "-f", offending[1] if offending else str(state.known_hosts), "-R", name)
    return GpuyardError(
        f"{what}. If you reinstalled it, compare this fingerprint with `ssh-keygen -lf` of the machine's "
        f"/etc/ssh/ssh_host_*_key.pub, forget the old key with `{shlex.join(forget)}`, and run `gpuyard deploy up` again"
    )


def check_host_key(state: StateDirectory, host: Host) -> None:
    """Connect once, and raise if ssh refuses the machine's key. Other failures are left to the next connection."""
    done = _connect(state.ssh_config, host)
    if done is not None and (error := host_key_error(state, done.stderr)):
        raise error


def _find_new_keys(state: StateDirectory, hosts: Sequence[Host]) -> list[HostKey]:
    """Return the keys that no file knows, from a copy of the configuration in which ssh adds them to a copy of the file."""
    with temporary_directory(shared_directory(), "ssh") as directory:
        known_hosts, config = directory / "known_hosts", directory / "ssh_config"
        recorded = _read_lines(state.known_hosts)
        files.write_text(known_hosts, "".join(f"{line}\n" for line in recorded), mode=0o600)
        text = state.render_ssh_config(tuple(hosts), known_hosts=known_hosts, add_keys=True)
        files.write_text(config, text, mode=0o600)
        _login(state, config, hosts[0])  # others may be reached through it
        with ThreadPoolExecutor(_MAX_THREADS) as pool:
            list(pool.map(lambda host: _login(state, config, host), hosts[1:]))
        added = {line for line in _read_lines(known_hosts) if line not in recorded}
    by_name = {host.known_name: host for host in hosts}
    keys = [line.split()[:3] for line in added]
    return sorted(
        (HostKey(by_name[name], kind, blob) for name, kind, blob in keys if name in by_name),
        key=lambda key: hosts.index(key.host),
    )


def _login(state: StateDirectory, config: Path, host: Host) -> None:
    done = _connect(config, host)
    if done is None:
        reason = f"no answer within {_TIMEOUT_SECONDS:.0f} s"
    elif done.returncode != _SSH_FAILED:
        return
    elif error := host_key_error(
        state, done.stderr.replace(str(config.parent / "known_hosts"), str(state.known_hosts))
    ):
        raise error
    else:
        reason = " ".join(done.stderr.split())[-_MAX_EXCERPT:].rstrip(".") or "no output"
    raise GpuyardError(
        f"{host.name} is unreachable at {host.address}: {reason}. Check that it is up and that you can log in with ssh, "
        "then run it again: it continues where it stopped"
    )


def _connect(config: Path, host: Host) -> "subprocess.CompletedProcess[str] | None":
    options = ("-o", "BatchMode=yes", "-o", f"ConnectTimeout={_CONNECT_SECONDS}")
    return try_login(config, host, options, _TIMEOUT_SECONDS)


def try_login(
    config: Path, host: Host, options: Sequence[str], timeout_seconds: float
) -> "subprocess.CompletedProcess[str] | None":
    """Log in with ssh and do nothing; return None if there is no answer in time."""
    argv = ("ssh", "-F", str(config), *options, "--", host.name, "true")
    try:
        return subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=timeout_seconds,
        )
    except subprocess.TimeoutExpired:
        return None


def _read_lines(path: Path) -> list[str]:
    return files.read_text(path).splitlines() if path.exists() else []
