"""Start other Python processes that import the same modules as this one, and nothing from the current directory.

Python puts that directory first, so that a `wave.py` in it would shadow the standard library's. The modules that this
file imports are loaded already; any other could come from that directory until it is removed from the path.
"""

import gc
import os
import sys

# no pathlib: see above
_PACKAGE_PARENT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))  # noqa: PTH120


def module_argv(module: str) -> tuple[str, ...]:
    """Return the command that runs a module with this interpreter."""
    return (sys.executable, "-P", "-m", module)


def import_path() -> dict[str, str]:
    """Return the environment variable that gives another process, on any node, this process's import path."""
    return {"PYTHONPATH": os.pathsep.join(_list_import_path())}


def forget_current_directory() -> None:
    """Remove the current directory from the import path; `python -m` or an empty PYTHONPATH entry added it."""
    sys.path[:] = _list_import_path()


def _list_import_path() -> list[str]:
    """List `sys.path` without the current directory."""
    try:
        here = os.path.realpath(os.getcwd())  # noqa: PTH109
    except FileNotFoundError:  # the directory was removed, so it contains no modules
        return [entry for entry in sys.path if os.path.isabs(entry)]  # noqa: PTH117
    absolute = [os.path.join(here, entry) for entry in sys.path if entry]  # noqa: PTH118
    return [
        entry for entry in absolute if os.path.realpath(entry) != here or here == _PACKAGE_PARENT
    ]


def import_permanently(*modules: str) -> None:
    """Import modules faster into a process that needs them until it exits.

    Their objects stay, so the garbage collector neither runs during the import nor scans them later.
    """
    gc.disable()
    try:
        for module in modules:
            __import__(module)
    finally:
        gc.freeze()
        gc.enable()
