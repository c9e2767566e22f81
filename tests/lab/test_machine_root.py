"""The Debian that a lab's machines start from is made once, whoever asks for it."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuyard.errors import GpuyardError
from gpuyard.lab import machine_root

_MAKE = "from gpuyard.lab.machine_root import make_root; print(make_root())"
_DEBOOTSTRAP = """#!/bin/sh
echo made >> "$COUNT"
sleep 0.5
for last; do before=$directory directory=$mirror mirror=$last; done
mkdir -p "$directory/etc/ssh"
"""


pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def _environment(tmp_path: Path, debootstrap: str) -> dict[str, str]:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "debootstrap").write_text(debootstrap)
    (programs / "debootstrap").chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "GPUYARD_ROOTS": str(tmp_path / "roots"),
        "COUNT": str(tmp_path / "count"),
    }


def test_two_who_want_it_at_once_make_it_once(tmp_path: Path) -> None:
    environment = _environment(tmp_path, _DEBOOTSTRAP)
    argv = (sys.executable, "-P", "-c", _MAKE)
    both = [subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE) for _ in range(2)]
    one, other = (process.communicate(timeout=60)[0] for process in both)
    assert [process.returncode for process in both] == [0, 0]
    assert one == other
    assert (tmp_path / "count").read_text() == "made\n"
    assert Path(one.decode().strip()).is_dir()


def test_nothing_of_debootstrap_runs_on_after_a_kill(tmp_path: Path) -> None:
    started = tmp_path / "started"
    script = f"#!/bin/sh\n(exec sleep 6543.21) &\ntouch {started}\nwait\n"
    environment = _environment(tmp_path, script)
    maker = subprocess.Popen((sys.executable, "-P", "-c", _MAKE), env=environment)
    deadline = time.monotonic() + 60
    while not started.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert _count("6543.21") == 1
    maker.kill()
    maker.wait()
    while _count("6543.21"):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _count(argument: str) -> int:
    """Return how many processes have this argument."""
    count = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            count += argument in path.read_text(errors="replace").split("\0")
    return count


def test_a_failing_debootstrap_and_its_progress_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "#!/bin/sh\necho I: Retrieving libc6\necho I: Retrieving dash\necho E: no mirror >&2\necho\nexit 1\n"
    environment = _environment(tmp_path, script)
    for name in ("PATH", "GPUYARD_ROOTS"):
        monkeypatch.setenv(name, environment[name])
    monkeypatch.setattr(machine_root, "_REPORT_SECONDS", 0.0)
    steps: list[str] = []
    with pytest.raises(GpuyardError, match="debootstrap failed: E: no mirror"):
        machine_root.make_root(report=steps.append)
    assert [step.rpartition(" ")[2] for step in steps[1:]] == ["1", "2"]
    assert "retrieving package" in steps[-1]
