"""Another Python of ours: it imports what this one does, and nothing that only lies in the current directory.

Python itself puts that directory first, so that a `wave.py` in it would be taken for Python's own.
"""

import os
import sys
from pathlib import Path

_WITH_GPUYARD = Path(__file__).parents[1]


def module_argv(module: str) -> tuple[str, ...]:
    """What starts a module."""
    return (sys.executable, "-P", "-m", module)


def import_path() -> dict[str, str]:
    """For its environment, on whatever node it is."""
    return {"PYTHONPATH": os.pathsep.join(_without_current_directory())}


def forget_current_directory() -> None:
    """For this process: `python -m`, or an empty entry of PYTHONPATH, has put it there."""
    sys.path[:] = _without_current_directory()


def _without_current_directory() -> list[str]:
    try:
        here = Path.cwd()
    except FileNotFoundError:  # it was removed, and holds nothing
        return [entry for entry in sys.path if Path(entry).is_absolute()]
    kept = [here / entry for entry in sys.path if entry]
    return [
        str(entry) for entry in kept if entry.resolve() != here or here == _WITH_GPUYARD.resolve()
    ]
