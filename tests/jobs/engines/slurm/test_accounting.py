"""With Slurm's database, jobs are known that Slurm's controller has forgotten and whose script was killed."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from gpuyard.jobs.engines.slurm.rows import queue_rows
from tests.jobs.engines.slurm.conftest import Yard, a_yard, until
from tests.slurm_cluster import SlurmCluster, slurm_cluster

pytestmark = pytest.mark.soak

_PROGRAMS = ("mariadbd", "mariadb", "mariadb-install-db", "slurmdbd", "sacctmgr")
_DATABASE = """\
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket
DbdHost=localhost
SlurmUser=root
PidFile={directory}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm
"""
_SETTINGS = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePass={directory}/munge.socket
"""


@contextmanager
def database(slurm: SlurmCluster, data: Path) -> Iterator[None]:
    """MariaDB and slurmdbd in the cluster, whose controller starts anew with them."""
    for name in _PROGRAMS:
        if shutil.which(name, path="/usr/bin:/usr/sbin") is None:
            pytest.skip(
                f"Slurm's database needs Debian's mariadb-server and slurmdbd: no {name} here"
            )
    directory = slurm.configuration.parent
    socket = data / "db.sock"
    made = slurm.run("mariadb-install-db", f"--datadir={data}", "--user=root", "--skip-test-db")
    assert made.returncode == 0, made.stderr
    server = subprocess.Popen(
        [*slurm.enter, "mariadbd", f"--datadir={data}", "--user=root", f"--socket={socket}",
         "--bind-address=127.0.0.1", "--skip-name-resolve", "--innodb-buffer-pool-size=32M", f"--pid-file={data}/pid"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        client = ("mariadb", f"--socket={socket}", "--execute")
        until(lambda: slurm.run(*client, "select 1").returncode == 0, lambda: "MariaDB is up")
        for said in (
            "create database slurm",
            "create user slurm@127.0.0.1 identified by 'slurm'",
            "grant all on slurm.* to slurm@127.0.0.1",
        ):
            done = slurm.run(*client, said)
            assert done.returncode == 0, done.stderr
        configuration = directory / "slurmdbd.conf"
        configuration.touch(0o600)
        configuration.write_text(_DATABASE.format(directory=directory))
        assert slurm.run("slurmdbd").returncode == 0
        with slurm.configuration.open("a") as file:
            file.write(_SETTINGS.format(directory=directory))
        add = ("sacctmgr", "--immediate", "add", "cluster", "gpuyard")
        until(lambda: slurm.run(*add).returncode == 0, lambda: "slurmdbd is up", seconds=1)
        slurm.daemon("slurmctld", "-D").kill()
        assert slurm.run("slurmctld").returncode == 0
        yield
    finally:
        server.kill()
        server.wait()


@pytest.fixture
def accounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Yard]:
    data = tmp_path / "data"
    data.mkdir()
    with (
        slurm_cluster(2, "KillWait=2\nMinJobAge=2\n") as slurm,
        a_yard(slurm, tmp_path, monkeypatch) as yard,
        database(slurm, data),
    ):
        yield yard


def test_a_job_whose_script_was_killed_is_known_by_the_database(accounted: Yard) -> None:
    handle = accounted.submit("sh", "-c", "echo run > ran; exec sleep 600")
    accounted.file("ran")
    inside = psutil.Process(accounted.slurm.first_process).children(recursive=True)
    alive = [one for one in inside if one.status() != psutil.STATUS_ZOMBIE]
    (script,) = (one for one in alive if "slurm_script" in " ".join(one.cmdline()))
    script.kill()
    until(lambda: not queue_rows(), lambda: "Slurm has forgotten it", seconds=2)
    status = accounted.ended(handle)
    assert (status.state, status.exit_status) == ("failed", 137)
