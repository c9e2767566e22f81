"""Discard the output that C libraries print by themselves, because standard output is for answers."""

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def silence_stdout() -> Iterator[None]:
    """Redirect standard output to /dev/null around a solver call: HiGHS 1.12 prints at times (its issue 2783).

    The redirection affects the whole process, so use it for short calls on the main thread.
    """
    try:
        saved_stdout = os.dup(1)
    except OSError:  # standard output is closed
        yield
        return
    sys.stdout.flush()
    libc = ctypes.CDLL(None)
    libc.fflush(None)
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 1)
        yield
    finally:
        libc.fflush(None)  # otherwise C's buffered output would appear later
        os.dup2(saved_stdout, 1)
        os.close(null)
        os.close(saved_stdout)
