"""Another Python of ours: it imports what this one does, and nothing that only lies in the current directory.

Python itself puts that directory first, so that a `wave.py` in it would be taken for Python's own. What is imported here
is in the interpreter already: until the directory is forgotten, anything else could be found there.
"""

import gc
import os
import sys

_WITH_GPUYARD = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))  # noqa: PTH120 - as said above


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
        here = os.path.realpath(os.getcwd())  # noqa: PTH109
    except FileNotFoundError:  # it was removed, and holds nothing
        return [entry for entry in sys.path if os.path.isabs(entry)]  # noqa: PTH117
    kept = [os.path.join(here, entry) for entry in sys.path if entry]  # noqa: PTH118
    return [entry for entry in kept if os.path.realpath(entry) != here or here == _WITH_GPUYARD]


def import_to_stay(*modules: str) -> None:
    """Import these into a process that is there for them, sooner than `import` would.

    All that they make stays. Python would look for garbage among it again and again, now and later.
    """
    gc.disable()
    try:
        for module in modules:
            __import__(module)
    finally:
        gc.freeze()
        gc.enable()
