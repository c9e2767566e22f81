"""The build of Horovod 0.28.1 against a current PyTorch: a value that describes it, and the function that runs it.

PyTorch's headers need C++17, and Horovod's build sets C++14 regardless of CXXFLAGS. A compiler uses the last `-std`, so a
wrapper appends one.
"""

import importlib.util
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpuyard.errors import GpuyardError, MissingRequirement
from gpuyard.interpreter import module_argv
from gpuyard.temporary import shared_directory, temporary_directory
from gpuyard.workloads.resolve import require_torch

VERSION = "0.28.1"
_NEEDED_TO_BUILD = ("setuptools<81", "wheel", "packaging")
_NEEDED_TO_RUN = ("cloudpickle", "psutil", "pyyaml")
_ENVIRONMENT = {
    "HOROVOD_WITH_PYTORCH": "1",
    "HOROVOD_WITHOUT_TENSORFLOW": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
    "HOROVOD_WITH_GLOO": "1",
    "HOROVOD_WITHOUT_MPI": "1",
}
_LAST_LINES = 25


@dataclass(frozen=True)
class HorovodBuild:
    """The commands, their environment, and the compiler for the wrapper."""

    compiler: str
    commands: tuple[tuple[str, ...], ...]
    environment: dict[str, str]

    @property
    def wrapper(self) -> str:
        return f'#!/bin/sh\nexec {shlex.quote(self.compiler)} "$@" -std=gnu++17\n'

    def describe(self) -> dict[str, Any]:
        """Describe the build for `--dry-run` and programs."""
        return {
            "version": VERSION,
            "compiler": self.compiler,
            "wrapper": self.wrapper,
            "environment": {**self.environment, "CXX": "the wrapper"},
            "commands": [list(command) for command in self.commands],
        }


def is_installed() -> bool:
    return importlib.util.find_spec("horovod") is not None


def plan_build() -> HorovodBuild:
    """Plan the build; raise if PyTorch or a tool is missing."""
    require_torch()
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        raise MissingRequirement("compiling horovod needs a C++ compiler; install one, such as g++")
    if shutil.which("cmake") is None:
        raise MissingRequirement("compiling horovod needs cmake; install it")
    pip = (*module_argv("pip"), "install")
    return HorovodBuild(
        compiler=compiler,
        commands=(
            (*pip, *_NEEDED_TO_BUILD, *_NEEDED_TO_RUN),
            (*pip, "--no-build-isolation", "--no-deps", "--no-cache-dir", f"horovod=={VERSION}"),
        ),
        environment=dict(_ENVIRONMENT),
    )


def build(plan: HorovodBuild, on_line: Callable[[str], None] = lambda _line: None) -> None:
    """Run the commands, and pass each line of their output to `on_line`."""
    with temporary_directory(shared_directory(), "horovod") as directory:
        wrapper = directory / "c++17"
        wrapper.write_text(plan.wrapper)
        wrapper.chmod(0o700)
        environment = {**os.environ, **plan.environment, "CXX": str(wrapper)}
        for command in plan.commands:
            _run(command, environment, on_line)
    importlib.invalidate_caches()
    if not is_installed():
        raise GpuyardError(
            "pip succeeded, but horovod cannot be imported; check that pip installs into this environment"
        )


def _run(
    command: tuple[str, ...], environment: dict[str, str], on_line: Callable[[str], None]
) -> None:
    last_lines: list[str] = []
    with subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        try:
            for line in process.stdout or ():
                last_lines = [*last_lines, line.rstrip()][-_LAST_LINES:]
                on_line(line.rstrip())
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        output = "\n".join(f"  {line}" for line in last_lines)
        raise GpuyardError(f"{' '.join(command[1:])} failed; its last lines:\n{output}")
