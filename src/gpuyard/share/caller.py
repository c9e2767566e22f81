"""The user on whose behalf an operation runs: IDs that the kernel reports, never a name that somebody types."""

import contextlib
import errno
import grp
import os
import pwd
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuyard.share import processes

if TYPE_CHECKING:
    import socket

_SO_PEERPIDFD = 77


@dataclass(frozen=True)
class Caller:
    """A process and its user."""

    uid: int
    gid: int
    pid: int
    process_start: int = -1
    """Start time that tells the process from a later one with the same PID; 0 if it has ended, by default read now."""

    def __post_init__(self) -> None:
        if self.process_start < 0:
            object.__setattr__(self, "process_start", processes.start_time(self.pid))

    @property
    def user(self) -> str:
        """The name of the account, or its number if it has no name."""
        return user_name(self.uid)

    @property
    def group(self) -> str:
        """The name of the primary group."""
        try:
            return grp.getgrgid(self.gid).gr_name
        except KeyError:
            return str(self.gid)

    def is_admin(self, group: str) -> bool:
        """Return whether this is root, the owner of the store (who runs this process), or a member of the group."""
        return self.uid in (0, os.geteuid()) or self.belongs_to(group)

    def belongs_to(self, group: str) -> bool:
        """Return whether the user database (not the process) lists the user in the group."""
        with contextlib.suppress(KeyError):
            entry = grp.getgrnam(group)
            return self.gid == entry.gr_gid or self.user in entry.gr_mem
        return False


def this_process() -> Caller:
    return Caller(os.getuid(), os.getgid(), os.getpid())


def read_peer(connection: "socket.socket") -> Caller:
    """Return the process that opened the other end, as the kernel recorded it at that time."""
    import socket
    import struct

    credentials = struct.Struct("3i")  # struct ucred: pid, uid, gid
    pid, uid, gid = credentials.unpack(
        connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size)
    )
    start = processes.start_time(pid)
    return Caller(uid, gid, pid, start if _is_peer_alive(connection, pid, uid) else 0)


def _is_peer_alive(connection: "socket.socket", pid: int, uid: int) -> bool:
    """Return whether the process that connected still runs, so that its PID is not another's by now."""
    import signal
    import socket

    try:
        handle = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError as error:
        # Linux before 6.5 has no such option: check the owner at least
        return error.errno == errno.ENOPROTOOPT and processes.owner(pid) == uid
    try:
        signal.pidfd_send_signal(handle, 0)
    except PermissionError:  # another user's, and alive
        return True
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def user_name(uid: int) -> str:
    """Return the name of the account, or its number if it has no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def groups_of(uid: int) -> frozenset[str]:
    """Return all groups of an account in the user database."""
    try:
        account = pwd.getpwuid(uid)
        numbers = os.getgrouplist(account.pw_name, account.pw_gid)
    except (KeyError, OSError):
        return frozenset()
    names = set()
    for number in numbers:
        try:
            names.add(grp.getgrgid(number).gr_name)
        except KeyError:
            continue
    return frozenset(names)
