"""A notebook that goes on when its terminal is closed: in a session of its own, its words in a file."""

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
from gpuyard.share.notebook.records import Notebook, all_notebooks
from gpuyard.share.notebook.run import NotebookCallbacks
from gpuyard.share.turns.queue import Turn

_LOG = "notebook.log"


def run_in_background(
    run: Callable[[NotebookCallbacks], int], waiting: Callable[[Turn], None]
) -> tuple[Notebook, Path]:
    """The notebook once it answers, and where its words are; raises what kept it from answering."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(readable)
        _be_the_notebook(run, waiting, writable)
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
        error = GpuyardError(answer.get("error", f"the notebook did not start; see {log_file()}"))
        error.exit_status = answer.get("status", 1)
        raise error
    notebook = Notebook(**{**answer["notebook"], "gpus": tuple(answer["notebook"]["gpus"])})
    return notebook, log_file()


def log_file() -> Path:
    """Of all notebooks of this user that run so; the token is in none of their words."""
    return all_notebooks() / _LOG


def _be_the_notebook(
    run: Callable[[NotebookCallbacks], int], waiting: Callable[[Turn], None], writable: int
) -> NoReturn:
    status = 1
    pipe = os.fdopen(writable, "wb")

    def answer(**values: object) -> None:
        """Once: whoever started this ends then."""
        if not pipe.closed:
            pipe.write(json.dumps(values).encode())
            pipe.close()

    try:
        os.setsid()
        terminal = _leave_the_terminal()
        last = ""

        def say(sentence: str) -> None:
            nonlocal last
            last = sentence
            sys.stderr.write(f"gpuyard: {sentence}\n")
            sys.stderr.flush()

        def wait(turn: Turn) -> None:
            with contextlib.redirect_stderr(terminal):
                waiting(turn)

        def ready(notebook: Notebook) -> None:
            terminal.close()  # else whoever reads it would wait for the notebook's end
            answer(notebook=asdict(notebook))

        status = run(NotebookCallbacks(wait, ready, say))
        answer(error=last or f"Jupyter ended with status {status}; see {log_file()}", status=1)
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


def _leave_the_terminal() -> Any:
    """All words go to the file from now on; what is returned still writes to the terminal."""
    path = log_file()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    terminal = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="backslashreplace")
    nothing = os.open(os.devnull, os.O_RDONLY)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    for source, stream in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, stream)
    os.close(nothing)
    os.close(log)
    return terminal
