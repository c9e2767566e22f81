"""Count the files of gpuyard that a reader walks to follow one command: those in which a function runs after import.

    python scripts/count_walk.py predict resnet50 --on 4xdgx-a100

Code that runs while a module is imported does not count, nor do class bodies. Only the main thread of the command's own
process is followed.
"""

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import gpuyard
from gpuyard.cli.main import main

_PACKAGE = str(Path(gpuyard.__file__).parent) + "/"
_OPTIMIZED = 0x1  # set for functions, not for modules and class bodies


class _Walk:
    """The names of the functions that ran, by file, in the order of their first call."""

    def __init__(self) -> None:
        self.functions: dict[str, dict[str, None]] = {}
        self._imports = 0

    def record(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if code.co_name == "<module>":
            self._imports += {"call": 1, "return": -1}.get(event, 0)
            return
        is_call = event == "call" and not self._imports and code.co_flags & _OPTIMIZED
        if is_call and code.co_filename.startswith(_PACKAGE):
            file = code.co_filename.removeprefix(_PACKAGE)
            self.functions.setdefault(file, {})[code.co_qualname] = None


def count_walk(words: list[str]) -> None:
    """Run a command line, then print its walk to stderr."""
    walk = _Walk()
    sys.argv = ["gpuyard", *words]
    sys.setprofile(walk.record)
    try:
        main()
    finally:
        sys.setprofile(None)
        for file, functions in sorted(walk.functions.items()):
            names = [name for name in functions if "<" not in name]
            print(f"{file}: {', '.join(names)}", file=sys.stderr)
        print(f"{len(walk.functions)} files", file=sys.stderr)


if __name__ == "__main__":
    count_walk(sys.argv[1:])
