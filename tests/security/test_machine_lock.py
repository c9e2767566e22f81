"""There is one measurement lock per machine, and a planted file in its place is not followed."""

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.errors import GpuyardError
from gpuyard.measure import machine_lock
from gpuyard.measure.machine_lock import DIRECTORY_VARIABLE, NAME, hold_measurement_lock, lock_file
from tests.conftest import MACHINE

pytestmark = MACHINE
TRY = """
import os, sys
from gpuyard.errors import GpuyardError
from gpuyard.measure.machine_lock import hold_measurement_lock
os.umask(0o077)
if sys.argv[1] != "-":
    os.setgid(int(sys.argv[1]))
    os.setuid(int(sys.argv[1]))
try:
    with hold_measurement_lock():
        print("measures")
except GpuyardError as error:
    print(error)
"""


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Create a directory outside pytest's own, which other users cannot enter."""
    with tempfile.TemporaryDirectory() as path:
        directory = Path(path)
        directory.chmod(0o1777)
        monkeypatch.setenv(DIRECTORY_VARIABLE, str(directory))
        yield directory


def try_to_measure(home: str = "/nonexistent", user: str = "-") -> str:
    """Return the output of another gpuyard process with another home or user."""
    finished = subprocess.run(
        [sys.executable, "-c", TRY, user],
        env={**os.environ, "GPUYARD_HOME": home}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return finished.stdout.strip()


def test_the_same_file_for_all_homes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(DIRECTORY_VARIABLE)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    paths = set()
    for home in ("one", "two"):
        monkeypatch.setenv("GPUYARD_HOME", str(tmp_path / home))
        paths.add(lock_file())
    assert len(paths) == 1
    (path,) = paths
    assert path.parent in (Path("/run/lock"), Path("/tmp"))  # noqa: S108


def test_without_a_shared_directory_the_lock_is_in_the_users_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: Path
) -> None:
    monkeypatch.delenv(DIRECTORY_VARIABLE)
    open_to_all, no_sticky = tmp_path / "private", tmp_path / "no-sticky"
    for path, mode in ((open_to_all, 0o755), (no_sticky, 0o777)):
        path.mkdir()
        path.chmod(mode)
    monkeypatch.setattr(
        machine_lock, "_SHARED_DIRECTORIES", (open_to_all, no_sticky, tmp_path / "none")
    )
    assert lock_file() == home / NAME


def test_another_home_waits(shared: Path) -> None:
    assert try_to_measure() == "measures"
    with hold_measurement_lock():
        assert "another gpuyard is measuring on this machine" in try_to_measure()
    assert try_to_measure() == "measures"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
def test_another_user_waits(shared: Path) -> None:
    with hold_measurement_lock():
        assert "another gpuyard is measuring" in try_to_measure(user="12345")
    assert try_to_measure(user="12345") == "measures"
    (shared / NAME).unlink()
    assert try_to_measure(user="12345") == "measures"  # creates the file with a umask of 077
    assert (shared / NAME).stat().st_uid == 12345
    assert stat.S_IMODE((shared / NAME).stat().st_mode) == 0o644
    with hold_measurement_lock():
        assert "another gpuyard is measuring" in try_to_measure(user="12345")
    assert try_to_measure(user="12346") == "measures"


@pytest.mark.parametrize("kind", ["link", "dangling", "directory", "pipe"])
def test_a_planted_file_is_not_followed(kind: str, shared: Path, tmp_path: Path) -> None:
    target = tmp_path / "precious"
    if kind == "directory":
        (shared / NAME).mkdir()
    elif kind == "pipe":
        os.mkfifo(shared / NAME)
    else:
        (shared / NAME).symlink_to(target)
    if kind == "link":
        target.write_text("mine")
        target.chmod(0o600)
    with pytest.raises(GpuyardError, match=machine_lock.NAME), hold_measurement_lock():
        pass
    assert kind == "link" or not target.exists()
    if kind == "link":
        assert (target.read_text(), stat.S_IMODE(target.stat().st_mode)) == ("mine", 0o600)


def test_a_deleted_lock_file_is_created_again(shared: Path) -> None:
    with hold_measurement_lock():
        (shared / NAME).unlink()
    with hold_measurement_lock():
        assert "another gpuyard is measuring" in try_to_measure()
