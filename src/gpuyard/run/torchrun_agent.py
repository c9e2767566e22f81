"""torchrun's agent on one host: `python -m gpuyard.run.torchrun_agent DIRECTORY OPTIONS COMMAND…`.

It is torchrun but for three things: it ends as its rank has ended, so that who started it can tell a fault
from a lost peer; it leaves when who started it has gone; and it leaves no logs behind: they are in the
run's directory, where this host has that.
"""

import contextlib
import os
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil

from gpuyard.run.launch import FAILED_RANK
from gpuyard.run.protocol import LOST_PEER_STATUS

# on a socket, which sshd may give as stdin, the other side's end is not POLLHUP
_GONE = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)
_LEAVE_SECONDS = 10.0


def main(arguments: list[str]) -> None:
    """Run torchrun and exit as the rank that failed first did."""
    directory, *options = arguments
    here = Path(directory).is_dir()
    logs = tempfile.mkdtemp(prefix="gpuyard-torchrun-", dir=directory if here else None)
    left_behind = directory if here else logs
    threading.Thread(target=_leave_with_parent, args=(left_behind,), daemon=True).start()
    try:
        status = _run([f"--log-dir={logs}", *options], Path(directory))
    finally:
        shutil.rmtree(left_behind if _parent_is_gone(0) else logs, ignore_errors=True)
    sys.stderr.flush()
    if status < 0:  # as the rank was, so that it is told as that
        with contextlib.suppress(OSError):  # SIGKILL has no other way
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)  # at once: all ranks are gone


def _run(arguments: list[str], directory: Path) -> int:
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # a file is enough on one host
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    try:
        run.run(run.parse_args(arguments))  # type: ignore[no-untyped-call]
    except ChildFailedError as failed:
        rank, fault = min(
            failed.failures.items(),
            key=lambda one: (one[1].exitcode == LOST_PEER_STATUS, one[1].timestamp),
        )
        with contextlib.suppress(OSError):  # on another host there is no such directory
            (directory / FAILED_RANK).write_text(str(rank))
        return fault.exitcode
    return 0


def _parent_is_gone(most_seconds: float | None) -> bool:
    """Looking at stdin takes nothing of it away from the ranks, which read it."""
    stdin = select.poll()
    stdin.register(0, _GONE)
    return bool(stdin.poll(None if most_seconds is None else 1000 * most_seconds))


def _leave_with_parent(left_behind: str) -> None:
    """The ranks leave by themselves when stdin ends; what they shared goes after them."""
    _parent_is_gone(None)
    deadline = time.monotonic() + _LEAVE_SECONDS
    while psutil.Process().children() and time.monotonic() < deadline:
        time.sleep(0.05)
    shutil.rmtree(left_behind, ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
