"""The Debian that a lab's machines start from is made once, whoever asks for it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_MAKE = "from gpuyard.lab.machine_root import make_root; print(make_root())"
_DEBOOTSTRAP = """#!/bin/sh
echo made >> "$COUNT"
sleep 0.5
for last; do before=$directory directory=$mirror mirror=$last; done
mkdir -p "$directory/etc/ssh"
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_two_who_want_it_at_once_make_it_once(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "debootstrap").write_text(_DEBOOTSTRAP)
    (programs / "debootstrap").chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "GPUYARD_ROOTS": str(tmp_path / "roots"),
        "COUNT": str(tmp_path / "count"),
    }
    argv = (sys.executable, "-P", "-c", _MAKE)
    both = [subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE) for _ in range(2)]
    one, other = (process.communicate(timeout=60)[0] for process in both)
    assert [process.returncode for process in both] == [0, 0]
    assert one == other
    assert (tmp_path / "count").read_text() == "made\n"
    assert Path(one.decode().strip()).is_dir()
