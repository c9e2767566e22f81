"""Run a command on a lab node: `python -P -m gpuyard.lab.enter NAMESPACE HOSTNAME CORES -- COMMAND…`.

The process becomes the command, with the node's network and host name, pinned to the node's cores.
"""

import ctypes
import os
import socket
import sys
from collections.abc import Sequence

from gpuyard.printable import make_printable

_CLONE_NEWNET = 0x40000000
_CLONE_NEWUTS = 0x04000000
_USAGE = 64  # EX_USAGE
_NOT_FOUND = 127
_NOT_ENTERED = 71  # EX_OSERR


def main(arguments: list[str]) -> None:
    if len(arguments) < 5 or arguments[3] != "--":
        sys.stderr.write("usage: NAMESPACE HOSTNAME CORES -- COMMAND…\n")
        sys.exit(_USAGE)
    namespace, hostname, cores, _, *command = arguments
    try:
        enter(namespace, hostname, [int(core) for core in cores.split(",")])
    except OSError as error:
        _print_error(f"cannot enter {namespace}: {error.strerror}")
        sys.exit(_NOT_ENTERED)
    try:
        os.execvp(command[0], command)  # noqa: S606  the command is the user's own
    except OSError as error:
        _print_error(f"cannot run {command[0]}: {error.strerror}")
        sys.exit(_NOT_FOUND)


def _print_error(message: str) -> None:
    sys.stderr.write(make_printable(f"gpuyard: {message}\n"))


def enter(namespace: str, hostname: str, cores: Sequence[int]) -> None:
    """Move the calling thread, and everything it starts afterwards, to the node."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(f"/var/run/netns/{namespace}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        # os.setns and os.unshare come with Python 3.12
        if libc.setns(descriptor, _CLONE_NEWNET) or libc.unshare(_CLONE_NEWUTS):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    finally:
        os.close(descriptor)
    socket.sethostname(hostname)
    os.sched_setaffinity(0, cores)


if __name__ == "__main__":
    main(sys.argv[1:])
