"""Writing of whole lines to a file or to stdout; an error never stops the training."""

import contextlib
import os
import sys


class LineAppender:
    """Appends whole lines to a file, so that concurrent readers never see half a line."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._error_reported = False

    def write(self, line: str) -> None:
        """Append a line, or report once that it is not possible."""
        try:
            if self._descriptor is None:
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                self._descriptor = os.open(self._path, flags | os.O_NONBLOCK, 0o600)
            os.write(self._descriptor, line.encode())
        except OSError as error:  # a failed report must not stop the training
            if not self._error_reported:
                self._error_reported = True
                with contextlib.suppress(OSError, ValueError):
                    sys.stderr.write(
                        f"gpuyard: cannot report steps to {self._path}: {error.strerror}\n"
                    )


def write_to_stdout(line: str) -> None:
    """Write a line to stdout, if it is still open."""
    with contextlib.suppress(OSError, ValueError):  # the reader or the training may have closed it
        sys.stdout.write(line)
        sys.stdout.flush()
