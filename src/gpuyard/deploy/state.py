"""One deployment's directory: what it was made from, Terraform's state, the inventory and logs; locked while it changes.

No secret is in it. The key for machines that gpuyard makes is the user's own file beside all deployments, as ssh keeps
its keys; tokens of services are made on the machine that they belong to, and stay there.
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
_MOST_ATTEMPTS = 1000
FULL = (errno.ENOSPC, errno.EDQUOT)
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,252}")
_KEY = re.compile(r"[a-z0-9@.-]+ [A-Za-z0-9+/]+={0,2}(?: [!-~]+)?")


@dataclass(frozen=True)
class Host:
    """A machine that is there, and how ssh reaches it. What it says comes to stand in ssh's configuration, where a line
    more could name a command to run."""

    name: str
    address: str
    user: str = "root"
    port: int = 22
    host_key: str = ""
    proxy_command: str = ""
    private_address: str = ""
    """By which the others reach it, where that is another."""
    first_contact: bool = False
    """Nobody knows its key before ssh has first seen it."""
    through_head: bool = False
    """It has an inside address only, and is reached by way of the head."""
    own_key: bool = False
    """It was made with gpuyard's key, which is shown to it."""

    def __post_init__(self) -> None:
        words = {"name": self.name, "address": self.address, "user": self.user}
        if self.private_address:
            words["private address"] = self.private_address
        for what, word in words.items():
            if not isinstance(word, str) or not _WORD.fullmatch(word):
                raise ValueError(f"{word!r} is not the {what} of a host")
        if self.host_key and not _KEY.fullmatch(self.host_key):
            raise ValueError(f"{self.host_key!r} is not the key of a host")
        if type(self.port) is not int or not 0 < self.port < 65536:
            raise ValueError(f"{self.port!r} is not a port")
        if not self.proxy_command.isprintable():
            raise ValueError(f"{self.proxy_command!r} is not one line")

    @property
    def inside(self) -> str:
        return self.private_address or self.address


@dataclass(frozen=True)
class StateDirectory:
    """Of one deployment."""

    name: str

    @property
    def path(self) -> Path:
        return _all() / self.name

    @property
    def terraform(self) -> Path:
        return self.path / "terraform"

    @property
    def ansible(self) -> Path:
        return self.path / "ansible"

    @property
    def ssh_config(self) -> Path:
        return self.path / "ssh_config"

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """One at a time; the kernel frees it with its process."""
        busy = f"another gpuyard is changing the deployment {self.name!r}; wait for it to end"
        with alone(self.path, busy):
            yield

    def token(self) -> str:
        """What tells its machines from those of another deployment of this name; the same until it is removed."""
        known = self.known_token()
        if known is None:
            known = secrets.token_hex(4)
            files.write_text(self.path / "token", known, mode=0o600)
        return known

    def known_token(self) -> str | None:
        try:
            return (self.path / "token").read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return None

    def hosts(self) -> tuple[Host, ...]:
        """As they were after the last `up`; none before."""
        try:
            document = json.loads(files.read_text(self.path / "hosts.json"))
            return tuple(Host(**host) for host in document)
        except UserMistake:
            return ()
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise GpuyardError(
                f"{self.path / 'hosts.json'} can't be read ({error}); `gpuyard deploy up` writes it anew"
            ) from error

    def write_hosts(self, hosts: tuple[Host, ...]) -> None:
        """With what ssh needs to know them."""
        document = [asdict(host) for host in hosts]
        files.write_text(self.path / "hosts.json", json.dumps(document, indent=1), mode=0o600)
        known = [f"{host.name} {host.host_key}" for host in hosts if host.host_key]
        files.write_text(self.path / "known_hosts", "".join(f"{k}\n" for k in known), mode=0o600)
        files.write_text(self.ssh_config, self.ssh_entries(hosts), mode=0o600)

    def ssh_entries(self, hosts: tuple[Host, ...], prefix: str = "") -> str:
        """What ssh is told of these, the head first; with a prefix, under names that no other deployment has."""
        lines = []
        for index, host in enumerate(hosts):
            lines += [
                f"Host {prefix}{host.name}",
                f"  HostName {host.address}",
                f"  User {host.user}",
                f"  Port {host.port}",
            ]
            if host.host_key:  # we made it: only its own key is believed, and ours is shown
                lines += [
                    f"  HostKeyAlias {host.name}",
                    f"  UserKnownHostsFile {_ssh_path(self.path / 'known_hosts')}",
                    "  StrictHostKeyChecking yes",
                    f"  IdentityFile {_ssh_path(key_file())}",
                    "  IdentitiesOnly yes",
                ]
            elif (
                host.first_contact
            ):  # its key is kept when it is first seen, and must stay the same
                lines += [
                    f"  HostKeyAlias {host.name}",
                    f"  UserKnownHostsFile {_ssh_path(self.path / 'seen_hosts')}",
                    "  StrictHostKeyChecking accept-new",
                    "  ConnectionAttempts 60",  # one a second: its sshd comes a little after it is there
                ]
            if host.own_key:
                lines += [f"  IdentityFile {_ssh_path(key_file())}", "  IdentitiesOnly yes"]
            if host.proxy_command:
                lines.append(f"  ProxyCommand {host.proxy_command.replace('%', '%%')}")
            elif host.through_head and index > 0:
                lines.append(f"  ProxyJump {prefix}{hosts[0].name}")
        return "".join(f"{line}\n" for line in lines)

    def is_new(self) -> bool:
        """Whether nothing but its lock is there."""
        return all(entry.name == _LOCK for entry in self.path.iterdir())

    def remove(self) -> None:
        """While it is held. The lock goes last, and the directory only if nobody has begun anew in it."""
        for entry in self.path.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            elif entry.name != _LOCK:
                entry.unlink()
        (self.path / _LOCK).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.path.rmdir()


@contextlib.contextmanager
def alone(directory: Path, busy: str) -> Iterator[None]:
    """Hold a directory, which is made where there is none; the kernel frees it with its process."""
    try:
        descriptor = _held(directory, busy)
        try:
            yield
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise full_disk(directory) from error


def _held(directory: Path, busy: str) -> int:
    """A descriptor of its lock; taken anew where who had it before has removed the directory meanwhile."""
    lock = directory / _LOCK
    for attempt in count():
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except (FileExistsError, FileNotFoundError):
            if attempt == _MOST_ATTEMPTS:
                raise GpuyardError(
                    f"{directory} is to be a directory, and something else has its name: move that away"
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
    raise AssertionError("it counts without end")


def full_disk(directory: Path, step: str = "") -> GpuyardError:
    where = f" at the step {step!r}" if step else ""
    return GpuyardError(
        f"the disk of this machine that has {directory} is full{where}: make room on it, then run it again: it continues "
        "where it stopped"
    )


def key_file() -> Path:
    """The private key for machines that gpuyard makes; a new one where there is none yet."""
    path = files.home() / "ssh" / "id_ed25519"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if shutil.which("ssh-keygen") is None:
            raise MissingRequirement("machines are reached over ssh, and ssh is not installed")
        argv = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "gpuyard", "-f", str(path))
        subprocess.run(argv, check=True, capture_output=True, stdin=subprocess.DEVNULL)
    return path


def public_key() -> str:
    return key_file().with_suffix(".pub").read_text(encoding="ascii").strip()


def deployments() -> list[str]:
    """Those that have a directory."""
    return (
        sorted(path.name for path in _all().iterdir() if path.is_dir()) if _all().is_dir() else []
    )


def _ssh_path(path: Path) -> str:
    """As ssh_config(5) reads it: quoted, and with no token to be replaced."""
    text = str(path)
    if not text.isprintable() or '"' in text or "$" in text:
        raise GpuyardError(f"ssh's configuration can't hold {text!r}; choose another GPUYARD_HOME")
    return f'"{text.replace("%", "%%")}"'


def _all() -> Path:
    return files.home() / "deployments"
