"""Run a notebook in its own session, so that it survives the end of its terminal; its output goes to a log file."""

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

from gpuyard.errors import GpuyardError
from gpuyard.share.models import QueueStatus
from gpuyard.share.notebook.records import Notebook, notebooks_directory
from gpuyard.share.notebook.run import NotebookCallbacks

_LOG = "notebook.log"


def run_in_background(
    run: Callable[[NotebookCallbacks], int], report: Callable[[QueueStatus], None]
) -> tuple[Notebook, Path]:
    """Wait until a notebook answers, and return it with its log file; raise the error that kept it from starting."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(readable)
        _run_child(run, report, writable)
    os.close(writable)
    try:
        with os.fdopen(readable, "rb") as pipe:
            answer: dict[str, Any] = json.loads(pipe.read() or b"{}")
    except KeyboardInterrupt:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGINT)
        os.waitpid(child, 0)
        raise
    if "notebook" not in answer:
        error = GpuyardError(answer.get("error", f"the notebook did not start; see {_log_file()}"))
        error.exit_status = answer.get("status", 1)
        raise error
    return Notebook.from_document(answer["notebook"]), _log_file()


def _log_file() -> Path:
    """Return the log of all background notebooks of this user. It never contains a token."""
    return notebooks_directory() / _LOG


def _run_child(
    run: Callable[[NotebookCallbacks], int], report: Callable[[QueueStatus], None], writable: int
) -> NoReturn:
    status = 1
    pipe = os.fdopen(writable, "wb")

    def answer(**values: object) -> None:
        """Answer the parent process once; it exits then."""
        if not pipe.closed:
            pipe.write(json.dumps(values).encode())
            pipe.close()

    try:
        os.setsid()
        terminal = _redirect_output()
        last_message = ""

        def on_message(sentence: str) -> None:
            nonlocal last_message
            last_message = sentence
            sys.stderr.write(f"gpuyard: {sentence}\n")
            sys.stderr.flush()

        def on_waiting(status: QueueStatus) -> None:
            with contextlib.redirect_stderr(terminal):
                report(status)

        def on_ready(notebook: Notebook) -> None:
            terminal.close()  # otherwise a reader of this output would wait for the notebook's end
            answer(notebook=asdict(notebook))

        status = run(NotebookCallbacks(on_waiting, on_ready, on_message))
        error_message = last_message or f"Jupyter exited with status {status}; see {_log_file()}"
        answer(error=error_message, status=1)
    except GpuyardError as error:
        status = error.exit_status
        answer(error=str(error), status=status)
    except KeyboardInterrupt:
        status = 130
    finally:
        with contextlib.suppress(OSError):
            sys.stderr.flush()
            pipe.close()
        os._exit(status)


def _redirect_output() -> Any:
    """Redirect all output to the log, and return a stream that still writes to the terminal."""
    path = _log_file()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    terminal = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="backslashreplace")
    null = os.open(os.devnull, os.O_RDONLY)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    for source, stream in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, stream)
    os.close(null)
    os.close(log)
    return terminal
