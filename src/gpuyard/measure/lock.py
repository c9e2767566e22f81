"""One measurement at a time: two on the same cores would both be wrong."""

import contextlib
import fcntl
import os
from collections.abc import Iterator

from gpuyard import paths
from gpuyard.errors import GpuyardError


@contextlib.contextmanager
def only_one_measures() -> Iterator[None]:
    """Held while measuring; the kernel frees it with the process, however that ends."""
    path = paths.home() / "measuring.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise GpuyardError(f"{path} can't be written: {error.strerror}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise GpuyardError(
                "another gpuyard is measuring on this machine, and both would be disturbed; "
                "run it again when that one has finished"
            ) from None
        yield
    finally:
        os.close(descriptor)
