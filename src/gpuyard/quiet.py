"""What a library in C prints by itself goes nowhere: standard output is for answers."""

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """For a solver: HiGHS 1.12 tells at times, however silent it is asked to be, what it runs inside (its issue 2783).

    Nothing of the process gets to its standard output meanwhile, so it is for a short call on the main thread.
    """
    try:
        kept = os.dup(1)
    except OSError:  # it is closed: there is nothing to keep clean
        yield
        return
    sys.stdout.flush()
    library = ctypes.CDLL(None)
    library.fflush(None)
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 1)
        yield
    finally:
        library.fflush(None)  # what C has kept until now would come out later
        os.dup2(kept, 1)
        os.close(nothing)
        os.close(kept)
