"""The lock of those who measure: one for a machine, and nobody is led astray by what lies in its place."""

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
from gpuyard.measure.machine_lock import DIRECTORY_VARIABLE, NAME, lock_file, only_one_measures
from tests.conftest import MACHINE

pytestmark = MACHINE
TRY = """
import os, sys
from gpuyard.errors import GpuyardError
from gpuyard.measure.machine_lock import only_one_measures
os.umask(0o077)
if sys.argv[1] != "-":
    os.setgid(int(sys.argv[1]))
    os.setuid(int(sys.argv[1]))
try:
    with only_one_measures():
        print("measures")
except GpuyardError as error:
    print(error)
"""


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Not in pytest's own directory: into that pytest lets nobody else, whenever another one starts."""
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        directory.chmod(0o1777)
        monkeypatch.setenv(DIRECTORY_VARIABLE, str(directory))
        yield directory


def other(home: str = "/nonexistent", user: str = "-") -> str:
    """What another gpuyard says, of another home or another user."""
    done = subprocess.run(
        [sys.executable, "-c", TRY, user],
        env={**os.environ, "GPUYARD_HOME": home}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


def test_the_same_file_for_all_homes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(DIRECTORY_VARIABLE)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    found = set()
    for home in ("one", "two"):
        monkeypatch.setenv("GPUYARD_HOME", str(tmp_path / home))
        found.add(lock_file())
    assert len(found) == 1
    (path,) = found
    assert path.parent in (Path("/run/lock"), Path("/tmp"))  # noqa: S108


def test_where_no_directory_is_for_all_it_is_the_users_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: Path
) -> None:
    monkeypatch.delenv(DIRECTORY_VARIABLE)
    open_to_all, no_sticky = tmp_path / "private", tmp_path / "no-sticky"
    for path, mode in ((open_to_all, 0o755), (no_sticky, 0o777)):
        path.mkdir()
        path.chmod(mode)
    monkeypatch.setattr(machine_lock, "_SHARED", (open_to_all, no_sticky, tmp_path / "none"))
    assert lock_file() == home / NAME


def test_another_home_waits(shared: Path) -> None:
    assert other() == "measures"
    with only_one_measures():
        assert "another gpuyard is measuring on this machine" in other()
    assert other() == "measures"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
def test_another_user_waits(shared: Path) -> None:
    with only_one_measures():
        assert "another gpuyard is measuring" in other(user="12345")
    assert other(user="12345") == "measures"
    (shared / NAME).unlink()
    assert other(user="12345") == "measures"  # and makes it, with a umask of 077
    assert (shared / NAME).stat().st_uid == 12345
    assert stat.S_IMODE((shared / NAME).stat().st_mode) == 0o644
    with only_one_measures():
        assert "another gpuyard is measuring" in other(user="12345")
    assert other(user="12346") == "measures"


@pytest.mark.parametrize("kind", ["link", "dangling", "directory", "pipe"])
def test_what_lies_in_its_place_is_not_followed(kind: str, shared: Path, tmp_path: Path) -> None:
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
    with pytest.raises(GpuyardError, match="can't be used"), only_one_measures():
        pass
    assert kind == "link" or not target.exists()
    if kind == "link":
        assert (target.read_text(), stat.S_IMODE(target.stat().st_mode)) == ("mine", 0o600)


def test_it_is_taken_again_where_it_was_cleaned_away(shared: Path) -> None:
    with only_one_measures():
        (shared / NAME).unlink()
    with only_one_measures():
        assert "another gpuyard is measuring" in other()
