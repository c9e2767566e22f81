"""Slurm's database shows that a job was killed with its script, even after the controller has forgotten the job."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpuyard.slurm.jobs import list_jobs
from tests.jobs.engines.slurm.conftest import Yard, create_yard, until
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
    """Start MariaDB and slurmdbd in the cluster, and restart its controller with them."""
    for name in _PROGRAMS:
        if shutil.which(name, path="/usr/bin:/usr/sbin") is None:
            pytest.skip(
                f"Slurm's database needs Debian's mariadb-server and slurmdbd: {name} not found"
            )
    directory = slurm.configuration.parent
    socket = data / "db.sock"
    done = slurm.run("mariadb-install-db", f"--datadir={data}", "--user=root", "--skip-test-db")
    assert done.returncode == 0, done.stderr
    server = subprocess.Popen(
        [*slurm.enter, "mariadbd", f"--datadir={data}", "--user=root", f"--socket={socket}",
         "--bind-address=127.0.0.1", "--skip-name-resolve", "--innodb-buffer-pool-size=32M", f"--pid-file={data}/pid"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        client = ("mariadb", f"--socket={socket}", "--execute")
        until(lambda: slurm.run(*client, "select 1").returncode == 0, lambda: "MariaDB is up")
        for statement in (
            "create database slurm",
            "create user slurm@127.0.0.1 identified by 'slurm'",
            "grant all on slurm.* to slurm@127.0.0.1",
        ):
            done = slurm.run(*client, statement)
            assert done.returncode == 0, done.stderr
        configuration = directory / "slurmdbd.conf"
        configuration.touch(0o600)
        configuration.write_text(_DATABASE.format(directory=directory))
        assert slurm.run("slurmdbd").returncode == 0
        with slurm.configuration.open("a") as file:
            file.write(_SETTINGS.format(directory=directory))
        add = ("sacctmgr", "--immediate", "add", "cluster", "gpuyard")
        until(lambda: slurm.run(*add).returncode == 0, lambda: "slurmdbd is up", seconds=1)
        slurm.find_daemon("slurmctld", "-D").kill()
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
        create_yard(slurm, tmp_path, monkeypatch) as yard,
        database(slurm, data),
    ):
        yield yard


def test_a_job_whose_script_was_killed_is_found_in_the_database_and_submitted_again(
    accounted: Yard,
) -> None:
    handle = accounted.submit(
        "sh", "-c", "echo run >> ran; test $(wc -l < ran) = 2 || exec sleep 600"
    )
    accounted.read_file("ran")
    processes = accounted.slurm.processes()
    (script,) = (process for process, command in processes if "slurm_script" in " ".join(command))
    script.kill()
    until(lambda: not list_jobs(), lambda: "Slurm has forgotten it", seconds=2)
    status = accounted.wait(handle)
    assert (status.state, status.restarts) == ("succeeded", 1), status.reason
    assert accounted.read_file("ran") == "run\nrun\n"
