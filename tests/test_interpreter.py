"""What a process of ours imports for its work."""

import subprocess
import sys

_LOADING = """
import contextlib, gc, sys
from gpuyard.interpreter import import_to_stay
with contextlib.suppress(ModuleNotFoundError):
    import_to_stay("wave", "there_is_no_such_module")
    sys.exit("a module that is missing was passed over")
wave = sys.modules["wave"]
assert gc.isenabled(), "garbage is not collected any more"
assert wave not in gc.get_objects(), "what was imported is looked at each time"
later = []
later.append(later)
assert any(one is later for one in gc.get_objects()), "what comes later is not looked at"
"""


def test_what_is_loaded_is_not_looked_at_for_garbage_and_what_comes_later_is() -> None:
    done = subprocess.run(
        (sys.executable, "-P", "-c", _LOADING), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
