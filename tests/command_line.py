"""`gpuyard ARGUMENTS`, in this process or in one of its own.

A process of its own takes most of a second, nearly all of it imports. So tests run commands here, through
the same `main` and behind a wall: what a command changes in this process (environment, directory, import
path, a user's own modules, handlers) is as it was when the command has ended.
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
_BECOME_ANOTHER_PROGRAM = (("lab", "exec"),)
_SIGNALS = (signal.SIGINT, signal.SIGTERM)

Done = subprocess.CompletedProcess[str]


def run_process(*arguments: str, cwd: Path, environment: Mapping[str, str]) -> Done:
    """In a process of its own, as a shell starts it."""
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
    """In this process. An error that would be shown with a traceback is raised."""
    if arguments[:2] in _BECOME_ANOTHER_PROGRAM or arguments[:1] == ("lease",):
        return run_process(*arguments, cwd=cwd, environment=environment)
    assert environment.get("PYTHONPATH") == os.environ.get("PYTHONPATH"), "needs gpuyard_process"
    with _file() as stdout, _file() as stderr:
        with _written_to(stdout, stderr), _behind_a_wall(arguments, cwd, environment):
            status = _status_of_main()
        stdout.seek(0)
        stderr.seek(0)
        return Done(["gpuyard", *arguments], status, stdout.read(), stderr.read())


def _file() -> IO[str]:
    return tempfile.TemporaryFile("w+", encoding="utf-8")


def _status_of_main() -> int:
    try:
        main()
    except SystemExit as leaving:
        if leaving.code is not None and not isinstance(leaving.code, int):
            raise
        return leaving.code or 0
    return 0


@contextlib.contextmanager
def _behind_a_wall(
    arguments: tuple[str, ...], cwd: Path, environment: Mapping[str, str]
) -> Iterator[None]:
    outside = Path.cwd()
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
        os.chdir(outside)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for name in set(sys.modules) - imported:
            # a user's own: the next test's may have the same name
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).is_relative_to(cwd) and not cwd.is_relative_to(ROOT):
                del sys.modules[name]


@contextlib.contextmanager
def _written_to(stdout: IO[str], stderr: IO[str]) -> Iterator[None]:
    """What is written to stdout and stderr from here on, also by the processes that are started."""
    outer = sys.stdin, sys.stdout, sys.stderr
    for stream in outer[1:]:
        stream.flush()
    kept = [os.dup(number) for number in (1, 2)]
    os.dup2(stdout.fileno(), 1)
    os.dup2(stderr.fileno(), 2)
    with (
        Path(os.devnull).open(encoding="utf-8") as nothing,
        open(1, "w", encoding="utf-8", closefd=False) as out,
        open(2, "w", encoding="utf-8", closefd=False) as err,
    ):
        sys.stdin, sys.stdout, sys.stderr = nothing, out, err
        try:
            yield
        finally:
            sys.stdin, sys.stdout, sys.stderr = outer
            out.flush()
            err.flush()
            for number, descriptor in zip((1, 2), kept, strict=True):
                os.dup2(descriptor, number)
                os.close(descriptor)
