"""Standard output is for answers."""

import subprocess
import sys

PROGRAM = """
import ctypes, sys
from gpuyard.quiet import quiet
C = ctypes.CDLL(None)
print("before")
C.printf(b"ours\\n")
with quiet():
    C.printf(b"theirs\\n")
    if "fail" in sys.argv:
        raise SystemExit(3)
print("after")
"""


def test_what_c_prints_inside_is_gone_and_all_else_is_there() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert sorted(done.stdout.split()) == ["after", "before", "ours"]


def test_standard_output_is_back_after_an_error() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "fail"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, sorted(done.stdout.split())) == (3, ["before", "ours"])


def test_a_process_without_standard_output_can_be_quiet_too() -> None:
    program = "import os; os.close(1)\nfrom gpuyard.quiet import quiet\nwith quiet(): os._exit(7)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 7
