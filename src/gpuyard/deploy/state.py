"""One deployment's directory: Terraform's module and state, the inventory, and logs. It is locked while it changes.

It holds no secrets. The ssh key for machines that gpuyard creates is the user's own file next to all deployments.
Service tokens are generated on the machine that they belong to, and stay there.
"""

import contextlib
import errno
import fcntl
import json
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path

from gpuyard import files
from gpuyard.errors import GpuyardError, MissingRequirement, UserMistake

_LOCK = "lock"
_MAX_ATTEMPTS = 1000
_SSH_PORT = 22
_USER_KNOWN_HOSTS = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")  # as in ssh_config(5)
DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT)
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,252}")
_KEY = re.compile(r"[a-z0-9@.-]+ [A-Za-z0-9+/]+={0,2}(?: [!-~]+)?")


@dataclass(frozen=True)
class Host:
    """A machine that exists, and how ssh reaches it.

    Its values are written to an ssh configuration, where an injected line could name a command to run, so they are checked.
    """

    name: str
    address: str
    user: str = "root"
    port: int = 22
    host_key: str = ""
    proxy_command: str = ""
    private_address: str = ""
    """The address that the other machines use, if it differs from `address`."""
    trust_on_first_use: bool = False
    """True if gpuyard created it. Its host key is unknown until ssh first connects, and must stay the same afterwards."""
    machine_id: str = ""
    """The cloud's id. A machine with another id replaces this one, and has another host key."""
    through_head: bool = False
    """True if it has only a private address, so ssh reaches it through the head."""
    uses_gpuyard_key: bool = False
    """True if it was created with gpuyard's public key, so ssh offers that key."""

    def __post_init__(self) -> None:
        values = {"name": self.name, "address": self.address, "user": self.user}
        if self.private_address:
            values["private address"] = self.private_address
        for field, value in values.items():
            if not isinstance(value, str) or not _WORD.fullmatch(value):
                raise ValueError(f"{value!r} is not a valid host {field}")
        if self.host_key and not _KEY.fullmatch(self.host_key):
            raise ValueError(f"{self.host_key!r} is not a valid host key")
        if type(self.port) is not int or not 0 < self.port < 65536:
            raise ValueError(f"{self.port!r} is not a valid port")
        if not self.proxy_command.isprintable():
            raise ValueError(f"{self.proxy_command!r} must be a single line")

    @property
    def is_created(self) -> bool:
        """True if gpuyard created it; otherwise, the user already had it."""
        return bool(self.host_key) or self.trust_on_first_use

    @property
    def known_name(self) -> str:
        """The name in `known_hosts`: addresses of created machines may belong to another machine tomorrow."""
        if self.is_created:
            return self.name
        return self.address if self.port == _SSH_PORT else f"[{self.address}]:{self.port}"

    @property
    def cluster_address(self) -> str:
        """The address by which the other machines of the cluster reach it."""
        return self.private_address or self.address


@dataclass(frozen=True)
class StateDirectory:
    """The directory of one deployment in gpuyard's home."""

    name: str

    @property
    def path(self) -> Path:
        return _root() / self.name

    @property
    def terraform(self) -> Path:
        return self.path / "terraform"

    @property
    def ansible(self) -> Path:
        return self.path / "ansible"

    @property
    def ssh_config(self) -> Path:
        return self.path / "ssh_config"

    @property
    def known_hosts(self) -> Path:
        """The host keys of its machines; ssh accepts no others."""
        return self.path / "known_hosts"

    @property
    def _busy(self) -> str:
        return f"another gpuyard process is changing the deployment {self.name!r}; wait until it finishes"

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Lock the deployment while it changes. Raises if another process holds it."""
        with hold_directory(self.path, self._busy):
            yield

    def check_unchanging(self) -> None:
        """Raise if another process holds the deployment, and so changes it."""
        try:
            descriptor = os.open(self.path / _LOCK, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise GpuyardError(self._busy) from None
        finally:
            os.close(descriptor)

    def ensure_token(self) -> str:
        """Return the token that tells this deployment's machines from those of another with the same name.

        It stays the same until the deployment is removed.
        """
        token = self.read_token()
        if token is None:
            token = secrets.token_hex(4)
            files.write_text(self.path / "token", token, mode=0o600)
        return token

    def ensure_prefix(self) -> str:
        """Return the prefix of the names of everything that this deployment creates in a cloud."""
        return f"gpuyard-{self.name}-{self.ensure_token()}"

    def read_token(self) -> str | None:
        try:
            return (self.path / "token").read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return None

    def hosts(self) -> tuple[Host, ...]:
        """Return the machines as of the last `up`; none before the first."""
        try:
            document = json.loads(files.read_text(self.path / "hosts.json"))
            return tuple(Host(**host) for host in document)
        except UserMistake:
            return ()
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise GpuyardError(
                f"cannot read {self.path / 'hosts.json'} ({error}); `gpuyard deploy up` rewrites it"
            ) from error

    def write_hosts(self, hosts: tuple[Host, ...]) -> None:
        """Save the machines, the host keys that are known, and the ssh configuration that reaches them."""
        document = [asdict(host) for host in hosts]
        keys = "".join(f"{line}\n" for line in self._list_keys(hosts))
        files.write_text(self.known_hosts, keys, mode=0o600)
        files.write_text(self.path / "hosts.json", json.dumps(document, indent=1), mode=0o600)
        files.write_text(self.ssh_config, self.render_ssh_config(hosts), mode=0o600)

    def _list_keys(self, hosts: tuple[Host, ...]) -> Iterator[str]:
        """Yield the lines of `known_hosts`: keys of new machines, and recorded keys of machines that are still the same."""
        recorded = (
            files.read_text(self.known_hosts).splitlines() if self.known_hosts.exists() else []
        )
        earlier: dict[str, str] = {}
        with contextlib.suppress(GpuyardError):  # `up` rewrites a damaged file
            earlier = {host.known_name: host.machine_id for host in self.hosts()}
        for host in hosts:
            name = host.known_name
            if host.host_key:
                yield f"{name} {host.host_key}"
            elif earlier.get(name, host.machine_id) == host.machine_id:
                yield from (line for line in recorded if line.split(" ")[0] == name)

    def render_ssh_config(
        self,
        hosts: tuple[Host, ...],
        prefix: str = "",
        *,
        known_hosts: Path | None = None,
        add_keys: bool = False,
    ) -> str:
        """Return ssh configuration entries for these hosts, of which the first is the head.

        The prefix makes host names unique among deployments. With `add_keys`, ssh adds unknown host keys to
        `known_hosts`; it never accepts a changed one.
        """
        own_keys = _ssh_path(known_hosts or self.known_hosts)
        users_keys = (_ssh_path(files.expand_home(path)) for path in _USER_KNOWN_HOSTS)
        existing_keys = " ".join((own_keys, *users_keys))
        lines = []
        for index, host in enumerate(hosts):
            lines += [
                f"Host {prefix}{host.name}",
                f"  HostName {host.address}",
                f"  User {host.user}",
                f"  Port {host.port}",
                f"  StrictHostKeyChecking {'accept-new' if add_keys else 'yes'}",
                f"  UserKnownHostsFile {own_keys if host.is_created else existing_keys}",
                "  UpdateHostKeys no",
            ]
            if host.is_created:
                lines.append(f"  HostKeyAlias {host.known_name}")
            if host.trust_on_first_use:
                # One attempt per second: sshd starts a little after the machine does.
                lines.append("  ConnectionAttempts 60")
            if host.host_key or host.uses_gpuyard_key:
                lines += [f"  IdentityFile {_ssh_path(key_file())}", "  IdentitiesOnly yes"]
            if host.proxy_command:
                lines.append(f"  ProxyCommand {host.proxy_command.replace('%', '%%')}")
            elif host.through_head and index > 0:
                lines.append(f"  ProxyJump {prefix}{hosts[0].name}")
        return "".join(f"{line}\n" for line in lines)

    def is_new(self) -> bool:
        """Return whether the directory holds nothing except its lock."""
        return all(entry.name == _LOCK for entry in self.path.iterdir())

    def remove(self) -> None:
        """Delete the directory; the caller must hold it.

        The lock file goes last. The directory stays if another process has started to use it again.
        """
        for entry in self.path.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            elif entry.name != _LOCK:
                entry.unlink()
        (self.path / _LOCK).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.path.rmdir()


@contextlib.contextmanager
def hold_directory(directory: Path, busy: str) -> Iterator[None]:
    """Lock a directory, which is created if necessary. The kernel releases the lock when the process ends."""
    try:
        descriptor = _lock(directory, busy)
        try:
            yield
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in DISK_FULL_ERRORS:
            raise
        raise full_disk_error(directory) from error


def _lock(directory: Path, busy: str) -> int:
    """Return a descriptor that holds the lock; retry if the previous holder removes the directory meanwhile."""
    lock = directory / _LOCK
    for attempt in count():
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except (FileExistsError, FileNotFoundError):
            if attempt == _MAX_ATTEMPTS:
                raise GpuyardError(
                    f"{directory} must be a directory, but something else has this name; move it away"
                ) from None
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), os.lstat(lock)):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise GpuyardError(busy) from None
        except FileNotFoundError:
            pass
        os.close(descriptor)
    raise AssertionError("unreachable")


def full_disk_error(directory: Path, step: str = "") -> GpuyardError:
    where = f" at the step {step!r}" if step else ""
    return GpuyardError(
        f"the disk of this machine that holds {directory} is full{where}; free some space, then run the command again: "
        "it continues where it stopped"
    )


def key_file() -> Path:
    """Return the path of the private key for machines that gpuyard creates; generate the key if necessary."""
    path = files.home() / "ssh" / "id_ed25519"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if shutil.which("ssh-keygen") is None:
            raise MissingRequirement(
                "ssh-keygen not found; install OpenSSH to reach machines over ssh"
            )
        argv = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "gpuyard", "-f", str(path))
        subprocess.run(argv, check=True, capture_output=True, stdin=subprocess.DEVNULL)
    return path


def public_key() -> str:
    return key_file().with_suffix(".pub").read_text(encoding="ascii").strip()


def list_deployments() -> list[str]:
    """Return the names of all deployments that have a directory."""
    root = _root()
    return sorted(path.name for path in root.iterdir() if path.is_dir()) if root.is_dir() else []


def _ssh_path(path: Path) -> str:
    """Quote a path for ssh_config(5), and escape what ssh would expand."""
    text = str(path)
    if not text.isprintable() or '"' in text or "$" in text:
        raise GpuyardError(
            f"an ssh configuration cannot contain {text!r}; choose another GPUYARD_HOME"
        )
    return f'"{text.replace("%", "%%")}"'


def _root() -> Path:
    return files.home() / "deployments"
