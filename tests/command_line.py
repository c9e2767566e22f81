"""Run `gpuyard ARGUMENTS` in this process or in a new one.

A new process takes most of a second, nearly all of it for imports. Therefore tests run commands in this process, through
the same `main`. Afterwards the state that a command changes is restored: environment, working directory, import path, the
user's modules, and signal handlers.
"""

import contextlib
import importlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO
from unittest import mock

from gpuyard.cli.main import main

ROOT = Path(__file__).parents[1]
_EXEC_COMMANDS = (("lab", "exec"),)
_SIGNALS = (signal.SIGINT, signal.SIGTERM)

Done = subprocess.CompletedProcess[str]


def run_process(*arguments: str, cwd: Path, environment: Mapping[str, str]) -> Done:
    """Run the command in a new process, as a shell does."""
    gpuyard = (sys.executable, "-m", "gpuyard")
    return run_program(*gpuyard, *arguments, cwd=cwd, environment=environment)


def run_program(*command: str, cwd: Path, environment: Mapping[str, str]) -> Done:
    return subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def run_here(*arguments: str, cwd: Path, environment: Mapping[str, str]) -> Done:
    """Run the command in this process; an error that would print a traceback is raised."""
    if arguments[:2] in _EXEC_COMMANDS or arguments[:1] == ("lease",):
        return run_process(*arguments, cwd=cwd, environment=environment)
    assert environment.get("PYTHONPATH") == os.environ.get("PYTHONPATH"), "needs gpuyard_process"
    with _open_file() as stdout, _open_file() as stderr:
        with _redirect_output(stdout, stderr), _restore_state(arguments, cwd, environment):
            status = _run_main()
        stdout.seek(0)
        stderr.seek(0)
        return Done(["gpuyard", *arguments], status, stdout.read(), stderr.read())


def _open_file() -> IO[str]:
    return tempfile.TemporaryFile("w+", encoding="utf-8")


def _run_main() -> int:
    try:
        main()
    except SystemExit as exit:
        if exit.code is not None and not isinstance(exit.code, int):
            raise
        return exit.code or 0
    return 0


@contextlib.contextmanager
def _restore_state(
    arguments: tuple[str, ...], cwd: Path, environment: Mapping[str, str]
) -> Iterator[None]:
    previous_directory = Path.cwd()
    imported = set(sys.modules)
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    importlib.invalidate_caches()  # the test may just have written a module
    os.chdir(cwd)
    try:
        with (
            mock.patch.dict(os.environ, environment, clear=True),
            mock.patch.object(sys, "argv", ["gpuyard", *arguments]),
            mock.patch.object(sys, "path", [*sys.path]),
            mock.patch.object(sys, "excepthook", sys.excepthook),
            mock.patch.object(os, "execv", side_effect=AssertionError("needs gpuyard_process")),
        ):
            yield
    finally:
        os.chdir(previous_directory)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for name in set(sys.modules) - imported:
            # forget the user's modules, because the next test may use the same names
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).is_relative_to(cwd) and not cwd.is_relative_to(ROOT):
                del sys.modules[name]


@contextlib.contextmanager
def _redirect_output(stdout: IO[str], stderr: IO[str]) -> Iterator[None]:
    """Redirect stdout and stderr to these files, including the output of child processes."""
    outer = sys.stdin, sys.stdout, sys.stderr
    for stream in outer[1:]:
        stream.flush()
    saved = [os.dup(number) for number in (1, 2)]
    os.dup2(stdout.fileno(), 1)
    os.dup2(stderr.fileno(), 2)
    with (
        Path(os.devnull).open(encoding="utf-8") as null,
        open(1, "w", encoding="utf-8", closefd=False) as out,
        open(2, "w", encoding="utf-8", closefd=False) as err,
    ):
        sys.stdin, sys.stdout, sys.stderr = null, out, err
        try:
            yield
        finally:
            sys.stdin, sys.stdout, sys.stderr = outer
            out.flush()
            err.flush()
            for number, descriptor in zip((1, 2), saved, strict=True):
                os.dup2(descriptor, number)
                os.close(descriptor)
