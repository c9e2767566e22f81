"""Who asks: ids that the kernel gives, never a name that somebody types."""

import contextlib
import grp
import os
import pwd
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket


@dataclass(frozen=True)
class Caller:
    """A process and whose it is."""

    uid: int
    gid: int
    pid: int

    @property
    def user(self) -> str:
        """The account's name, or its number where it has none."""
        return user_name(self.uid)

    @property
    def group(self) -> str:
        """The name of the main group."""
        try:
            return grp.getgrgid(self.gid).gr_name
        except KeyError:
            return str(self.gid)

    def is_admin(self, group: str) -> bool:
        """Root, the owner of the store (who runs this), and whoever is in that group."""
        return self.uid in (0, os.geteuid()) or self.belongs_to(group)

    def belongs_to(self, group: str) -> bool:
        """Whether the user database, not the process, says so."""
        with contextlib.suppress(KeyError):
            found = grp.getgrnam(group)
            return self.gid == found.gr_gid or self.user in found.gr_mem
        return False


def this_process() -> Caller:
    """The process that runs this."""
    return Caller(os.getuid(), os.getgid(), os.getpid())


def peer(connection: "socket.socket") -> Caller:
    """The process that opened the other end, as the kernel noted it at that time."""
    import socket
    import struct

    credentials = struct.Struct("3i")  # struct ucred: pid, uid, gid
    pid, uid, gid = credentials.unpack(
        connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size)
    )
    return Caller(uid, gid, pid)


def user_name(uid: int) -> str:
    """The account's name, or its number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
