"""Building Horovod 0.28.1 against a current PyTorch: as a value first, then for real.

PyTorch's headers need C++17 and Horovod's build insists on C++14, whatever CXXFLAGS says; the last
`-std` on a compiler's command line counts, so a wrapper adds one.
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
from gpuyard.temporary import held_directory, shared_directory
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
    """The commands, their environment, and the compiler that they wrap."""

    compiler: str
    commands: tuple[tuple[str, ...], ...]
    environment: dict[str, str]

    @property
    def wrapper(self) -> str:
        return f'#!/bin/sh\nexec {shlex.quote(self.compiler)} "$@" -std=gnu++17\n'

    def describe(self) -> dict[str, Any]:
        """For `--dry-run` and programs."""
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
    """Check that PyTorch and the tools are here."""
    require_torch()
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        raise MissingRequirement("horovod has to be compiled; install a C++ compiler, like g++")
    if shutil.which("cmake") is None:
        raise MissingRequirement("horovod has to be compiled; install cmake")
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
    """Run the commands; what they say is passed on line by line."""
    with held_directory(shared_directory(), "horovod") as directory:
        wrapper = directory / "c++17"
        wrapper.write_text(plan.wrapper)
        wrapper.chmod(0o700)
        environment = {**os.environ, **plan.environment, "CXX": str(wrapper)}
        for command in plan.commands:
            _run(command, environment, on_line)
    importlib.invalidate_caches()
    if not is_installed():
        raise GpuyardError(
            "pip succeeded, but horovod can't be found; is this a virtual environment?"
        )


def _run(
    command: tuple[str, ...], environment: dict[str, str], on_line: Callable[[str], None]
) -> None:
    last: list[str] = []
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
                last = [*last, line.rstrip()][-_LAST_LINES:]
                on_line(line.rstrip())
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        shown = "\n".join(f"  {line}" for line in last)
        raise GpuyardError(f"{' '.join(command[1:])} failed; its last lines:\n{shown}")
