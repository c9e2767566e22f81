"""torchrun's agent on one host: `python -m gpuyard.measure.torchrun_agent DIRECTORY OPTIONS COMMAND…`.

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
from pathlib import Path

from gpuyard.measure.job import LOST_PEER_STATUS
from gpuyard.measure.launch import FAILED_RANK

# on a socket, which sshd may give as stdin, the other side's end is not POLLHUP
_GONE = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)


def main(arguments: list[str]) -> None:
    """Run torchrun and exit as the rank that failed first did."""
    directory, *options = arguments
    within = directory if Path(directory).is_dir() else None
    logs = tempfile.mkdtemp(prefix="gpuyard-torchrun-", dir=within)
    threading.Thread(target=_leave_with_parent, args=(logs,), daemon=True).start()
    try:
        status = _run([f"--log-dir={logs}", *options], Path(directory))
    finally:
        shutil.rmtree(logs, ignore_errors=True)
    sys.stderr.flush()
    if status < 0:  # as the rank was, so that it is told as that
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


def _leave_with_parent(logs: str) -> None:
    """The ranks read stdin and leave by themselves; looking at it takes nothing away from them."""
    stdin = select.poll()
    stdin.register(0, _GONE)
    stdin.poll()
    shutil.rmtree(logs, ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
