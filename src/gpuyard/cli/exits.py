"""Run a command, and turn its errors into messages and exit statuses. Nothing else does that."""

import contextvars
import errno
import io
import os
import shutil
import sys
import textwrap
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from gpuyard.errors import CodeNotAllowed, GpuyardError, quote
from gpuyard.printable import make_printable

_INTERRUPTED = 130
_MAX_MESSAGE_CHARACTERS = 4000
_OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


def open_closed_streams() -> None:
    """Open the standard streams that the caller closed; otherwise, the next opened file would get their output.

    Nothing can be read from stdin then, writing to stdout fails, and errors are dropped.
    """
    modes = {"stdin": os.O_RDONLY, "stdout": os.O_RDONLY, "stderr": os.O_WRONLY}
    for descriptor, (name, mode) in enumerate(modes.items()):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, mode), descriptor)
            os.set_inheritable(descriptor, True)  # also if it is the same descriptor
            setattr(sys, name, os.fdopen(descriptor, "w" if descriptor else "r", encoding="utf-8"))


def run_and_exit(command: Callable[[], None]) -> None:
    """Run a command line, and exit with the status of its error if it fails."""
    sys.excepthook = _show_traceback
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may lack some characters
    contextvars.copy_context().run(_run, command)  # --allow-code applies to this command line only


def _show_traceback(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    sys.stderr.write(make_printable("".join(traceback.format_exception(kind, error, trace))))


def _run(command: Callable[[], None]) -> None:
    try:
        try:
            command()
        finally:
            sys.stdout.flush()  # reports a full disk here and not while Python exits
    except CodeNotAllowed as error:
        from gpuyard.cli.options import confirm_code

        if not confirm_code(error):
            fail(error)
        _run(
            command
        )  # commands check code before they change anything, so it is safe to start again
    except GpuyardError as error:
        fail(error)
    except KeyboardInterrupt:
        _report_interrupt()
        sys.exit(_INTERRUPTED)
    except SystemExit as leaving:
        if leaving.code == _INTERRUPTED:  # typer prints nothing after Ctrl-C
            _report_interrupt()
        raise
    except BrokenPipeError:
        _discard_output()  # the reader (head, less) has exited
        sys.exit(141)
    except OSError as error:
        fail_on_system(error)


def fail_on_system(error: OSError) -> NoReturn:
    """Explain an error of the system that no command expected: a file that cannot be used, or the output."""
    if error.filename is not None and os.environ.get("GPUYARD_DEBUG") != "1":
        message = f"{clean_message(quote(str(error.filename)))}: {error.strerror}"
        if isinstance(error, PermissionError):
            message += "; check that HOME or GPUYARD_HOME names your own directory"
        sys.stderr.write(f"gpuyard: {message}\n")
        sys.exit(2 if error.errno == errno.ENAMETOOLONG else 1)
    if isinstance(error, FileNotFoundError) and error.filename is None:  # os.getcwd names no file
        sys.stderr.write("gpuyard: the current directory no longer exists; change to another one\n")
        sys.exit(1)
    if error.errno not in _OUTPUT_ERRORS:
        raise error
    _discard_output()
    sys.stderr.write(f"gpuyard: the answer cannot be written: {error.strerror}\n")
    sys.exit(1)


def _report_interrupt() -> None:
    sys.stderr.write("gpuyard: stopped; finished results are kept\n")


def _discard_output() -> None:
    """Redirect standard output, because Python would fail again when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def fail(error: GpuyardError) -> NoReturn:
    """Print the error and exit with its status."""
    if os.environ.get("GPUYARD_DEBUG") == "1":
        raise error
    sys.stderr.write(_wrap(f"gpuyard: {clean_message(error)}") + "\n")
    sys.exit(error.exit_status)


def clean_message(text: object) -> str:
    """Make a message safe for a terminal, and limit it to about a screen."""
    message = make_printable(str(text))
    if len(message) <= _MAX_MESSAGE_CHARACTERS:
        return message
    return f"{message[:_MAX_MESSAGE_CHARACTERS]}…"


def _wrap(text: str) -> str:
    """Wrap text between words on a terminal; leave it unchanged elsewhere."""
    if not sys.stderr.isatty():
        return text
    width = shutil.get_terminal_size().columns
    return "\n".join(
        textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)
        for line in text.split("\n")
    )
