"""Imports that stay for the life of a process."""

import subprocess
import sys

_LOADING = """
import contextlib, gc, sys
from gpuyard.interpreter import import_permanently
with contextlib.suppress(ModuleNotFoundError):
    import_permanently("wave", "there_is_no_such_module")
    sys.exit("a missing module raised no error")
wave = sys.modules["wave"]
assert gc.isenabled(), "garbage collection is off"
assert wave not in gc.get_objects(), "imported objects are collected"
later = []
later.append(later)
assert any(item is later for item in gc.get_objects()), "later objects are not collected"
"""


def test_garbage_collection_skips_imported_objects_but_not_later_ones() -> None:
    done = subprocess.run(
        (sys.executable, "-P", "-c", _LOADING), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
