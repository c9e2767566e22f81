"""Clean up when SIGTERM ends the process, or SIGHUP because its terminal was closed."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator

ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def exit_on_signals() -> Iterator[None]:
    """Let these signals leave the block like an exit, except those that the program or `nohup` handles itself."""
    unhandled = [each for each in ENDING_SIGNALS if signal.getsignal(each) is signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread() or not unhandled:
        yield
        return

    owner, leaving = os.getpid(), threading.Event()

    def leave(number: int, frame: object) -> None:
        del frame
        if os.getpid() != owner:  # pyroute2 ends its children like this; the cleanup is not theirs
            os._exit(128 + number)
        if not leaving.is_set():  # a second signal must not interrupt the cleanup
            leaving.set()
            sys.exit(128 + number)

    for each in unhandled:
        signal.signal(each, leave)
    try:
        yield
    finally:
        for each in unhandled:
            signal.signal(each, signal.SIG_DFL)
