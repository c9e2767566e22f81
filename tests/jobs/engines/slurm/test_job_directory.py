"""The directory of jobs on a cluster whose homes are not shared."""

import getpass
import os
from pathlib import Path

import pytest

from gpuyard.errors import GpuyardError
from gpuyard.jobs.engines.slurm import records


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for everybody's jobs that this machine's settings name."""
    directory = tmp_path / "shared" / ".gpuyard-jobs"
    directory.mkdir(parents=True)
    settings = tmp_path / "job_directory"
    settings.write_text(f"{directory}\n")
    monkeypatch.setattr(records, "SITE_FILE", settings)
    monkeypatch.delenv("GPUYARD_HOME")
    return directory


def test_jobs_are_kept_on_the_shared_storage_for_their_user_alone(shared: Path) -> None:
    own = shared / getpass.getuser()
    assert records.job_directory("x") == own / "x"
    assert own.stat().st_mode & 0o777 == 0o700
    assert records.read_all() == []


def test_the_users_own_setting_counts_more(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUYARD_HOME", str(tmp_path / "mine"))
    assert records.job_directory("x") == tmp_path / "mine" / "jobs" / "slurm" / "x"
    assert not list(shared.iterdir())


def test_a_directory_of_another_user_is_refused(shared: Path) -> None:
    """Anyone may create directories there, so another user may have created this one."""
    (shared.parent / "elsewhere").mkdir()
    own = shared / getpass.getuser()
    own.symlink_to(shared.parent / "elsewhere")
    with pytest.raises(GpuyardError, match=f"{own} must belong to you"):
        records.job_directory("x")
    own.unlink()
    if os.geteuid() == 0:
        own.mkdir()
        os.chown(own, 65534, 65534)
        with pytest.raises(GpuyardError, match=f"{own} must belong to you"):
            records.job_directory("x")


def test_a_missing_mount_is_named(shared: Path) -> None:
    shared.rmdir()
    with pytest.raises(GpuyardError, match=r"job_directory names, cannot be used .*GPUYARD_HOME"):
        records.job_directory("x")
