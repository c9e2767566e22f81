"""The output of C libraries never reaches standard output."""

import subprocess
import sys

PROGRAM = """
import ctypes, sys
from gpuyard.stdout_redirect import silence_stdout
C = ctypes.CDLL(None)
print("before")
C.printf(b"ours\\n")
with silence_stdout():
    C.printf(b"theirs\\n")
    if "fail" in sys.argv:
        raise SystemExit(3)
print("after")
"""


def test_only_the_output_of_c_inside_the_block_is_discarded() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert sorted(done.stdout.split()) == ["after", "before", "ours"]


def test_standard_output_is_back_after_an_error() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "fail"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, sorted(done.stdout.split())) == (3, ["before", "ours"])


def test_a_process_without_standard_output_can_use_it_too() -> None:
    program = "import os; os.close(1)\nfrom gpuyard.stdout_redirect import silence_stdout\nwith silence_stdout(): os._exit(7)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 7
