"""A real Slurm for tests: its own key, daemons and nodes, in namespaces of its own on this machine.

All its processes are in one PID namespace, whose first one reads this process's pipe: when the tests end, in
whatever way, so has the cluster. It has its own loopback too, so it meets no other Slurm and no other port.
"""

import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

GPUS = 4
"""Of each node; they only have numbers."""
_PROGRAMS = ("munged", "slurmctld", "slurmd", "salloc", "srun", "unshare", "nsenter", "ip")
_DATABASE_PROGRAMS = ("mariadb-install-db", "mariadbd", "slurmdbd", "sacctmgr")
_READY_SECONDS = 60.0
_CLIENT_SECONDS = 240.0

# Names of nodes resolve nowhere, as on a cluster whose Slurm alone knows them
_CONFIGURATION = """\
ClusterName=gpuyard
SlurmctldHost=localhost
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/%n.pid
ProctrackType=proctrack/linuxproc
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
GresTypes=gpu
DefMemPerCPU=100
NodeName=node[1-{nodes}] NodeHostname=localhost NodeAddr=10.99.0.[1-{nodes}] Port=[17001-{last_port}] \
CPUs=4 RealMemory=4000 Gres=gpu:t4:{gpus}
PartitionName=all Nodes=ALL Default=YES State=UP
"""
_FIRST_PROCESS = """\
ip link set lo up
for number in $(seq "$2"); do ip address add "10.99.0.$number/32" dev lo; done
munged --foreground --force --key-file="$1/munge.key" --socket="$1/munge.socket" \
    --pid-file="$1/munged.pid" --log-file="$1/munged.log" --seed-file="$1/munged.seed" &
slurmctld -D &
for number in $(seq "$2"); do slurmd -D -N "node$number" & done
read -r _
kill -9 -1
rm -rf "$1"
"""
# of a configuration with the directories of a real machine, which are empty ones here
_FIRST_PROCESS_OF_ONE = """\
ip link set lo up
ip address add 10.99.0.1/32 dev lo # glibc resolves no address where there is none but the loopback's
for place in /run /var/lib/slurm /var/log/slurm; do mount -t tmpfs none "$place" || exit 1; done
mkdir -p /run/munge /var/lib/slurm/slurmctld /var/lib/slurm/slurmd
chown slurm /var/lib/slurm/slurmctld /var/log/slurm
munged --foreground --force --key-file="$1/munge.key" --socket=/run/munge/munge.socket.2 \
    --pid-file="$1/munged.pid" --log-file="$1/munged.log" --seed-file="$1/munged.seed" &
eval "$3"
slurmctld -D &
slurmd -D &
read -r _
kill -9 -1
rm -rf "$1"
"""
# as an admin does it: the database, then accounts.sh, which wants slurmctld to be started before it is run again
_DATABASE = """\
mkdir -p /run/mysqld
mariadb-install-db --no-defaults --datadir="$1/database" --user=root --skip-test-db --innodb-log-file-size=8M >/dev/null
mariadbd --no-defaults --user=root --datadir="$1/database" --socket=/run/mysqld/mysqld.sock --skip-networking \
    --skip-grant-tables --innodb-buffer-pool-size=32M --innodb-log-file-size=8M &
until [ -S /run/mysqld/mysqld.sock ]; do sleep 0.1; done
slurmdbd -D &
until "${SLURM_CONF%/*}/accounts.sh"; [ "$(sacctmgr --noheader show cluster | wc -l)" = 1 ]; do sleep 0.2; done
"""
_DATABASE_CONFIGURATION = """\
AuthType=auth/munge
DbdHost=localhost
SlurmUser=slurm
PidFile=/run/slurmdbd.pid
LogFile=/var/log/slurm/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=localhost
"""


@dataclass(frozen=True)
class SlurmCluster:
    """One that is up."""

    first_process: int
    configuration: Path

    @property
    def enter(self) -> list[str]:
        """What starts a command inside."""
        return ["nsenter", f"--target={self.first_process}", "--net", "--pid", "--mount", "--root"]

    def daemon(self, *words: str) -> psutil.Process:
        """The one whose command line begins like this."""
        (found,) = (
            process
            for process in psutil.Process(self.first_process).children(recursive=True)
            if process.status() != psutil.STATUS_ZOMBIE
            and process.cmdline()[: len(words)] == [*words]
        )
        return found

    def run(
        self, *argv: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """A command inside, where Slurm's clients find it."""
        return subprocess.run(
            [*self.enter, f"--wdns={Path.cwd()}", *argv],
            env={
                **{k: v for k, v in os.environ.items() if not k.startswith("SLURM_")},
                "SLURM_CONF": str(self.configuration),
                "GLOO_SOCKET_IFNAME": "lo",
                **(environment or {}),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_CLIENT_SECONDS,
        )


@contextmanager
def slurm_cluster(nodes: int, settings: str = "") -> Iterator[SlurmCluster]:
    """Up as long as this lasts, with these lines of configuration as well; skips the test where it can't be."""
    with _own_directory() as directory:
        _write(directory, nodes, settings)
        with _started(directory, directory / "slurm.conf", _FIRST_PROCESS, nodes) as cluster:
            yield cluster


@contextmanager
def slurm_of(configuration: Path, *, database: bool = False) -> Iterator[SlurmCluster]:
    """One machine with a configuration that was written for this one, and its database if asked for."""
    with _own_directory(_DATABASE_PROGRAMS if database else ()) as directory:
        _write_key(directory)
        before = ""
        if database:
            before = _DATABASE
            settings = configuration.with_name("slurmdbd.conf")
            settings.touch(0o600)
            settings.write_text(_DATABASE_CONFIGURATION, encoding="utf-8")
            shutil.chown(settings, "slurm")
        with _started(directory, configuration, _FIRST_PROCESS_OF_ONE, 1, before) as cluster:
            yield cluster


@contextmanager
def _own_directory(more_programs: Sequence[str] = ()) -> Iterator[Path]:
    programs = (*_PROGRAMS, *more_programs)
    missing = [name for name in programs if shutil.which(name, path=_path()) is None]
    if missing:
        pytest.skip(f"a Slurm of its own needs Debian's slurm-wlm and munge: no {missing[0]} here")
    if os.geteuid() != 0:
        pytest.skip("a Slurm of its own needs root")
    directory = Path(tempfile.mkdtemp(prefix="gpuyard-slurm-"))
    directory.chmod(0o755)  # every user reads the configuration, and asks munge
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _started(
    directory: Path, configuration: Path, first_process: str, nodes: int, before: str = ""
) -> Iterator[SlurmCluster]:
    unshare = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [*unshare, "sh", "-c", first_process, "sh", str(directory), str(nodes), before],
            env={**os.environ, "PATH": _path(), "SLURM_CONF": str(configuration)},
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield _ready(process, directory, configuration, nodes)
    finally:
        process.communicate(timeout=_READY_SECONDS)  # closes the pipe


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def _write_key(directory: Path) -> None:
    key = directory / "munge.key"
    key.touch(0o600)
    key.write_bytes(secrets.token_bytes(64))


def _write(directory: Path, nodes: int, settings: str) -> None:
    (directory / "state").mkdir(mode=0o700)
    _write_key(directory)
    gpus = [directory / f"gpu{number}" for number in range(GPUS)]
    for gpu in gpus:
        os.mknod(gpu, 0o020_600, os.makedev(1, 3))  # as /dev/null: Slurm only hands out its number
    files = {
        "slurm.conf": _CONFIGURATION.format(
            directory=directory, nodes=nodes, gpus=GPUS, last_port=17000 + nodes
        )
        + settings,
        "gres.conf": "".join(f"Name=gpu Type=t4 File={gpu}\n" for gpu in gpus),
        "cgroup.conf": "",
    }
    for name, text in files.items():
        (directory / name).write_text(text, encoding="utf-8")


def _ready(
    process: subprocess.Popen[bytes], directory: Path, configuration: Path, nodes: int
) -> SlurmCluster:
    deadline = time.monotonic() + _READY_SECONDS
    said = ""
    while time.monotonic() < deadline:
        if process.poll() is not None:
            pytest.skip(f"no namespaces for a Slurm of its own: {_log(directory)}")
        for child in psutil.Process(process.pid).children():
            cluster = SlurmCluster(child.pid, configuration)
            states = cluster.run("sinfo", "--noheader", "--Node", "--format=%T")
            said = states.stdout + states.stderr
            if states.stdout.split() == ["idle"] * nodes:
                return cluster
        time.sleep(0.1)
    raise AssertionError(f"Slurm did not come up: {said}\n{_log(directory)}")


def _log(directory: Path) -> str:
    return (directory / "log").read_text(encoding="utf-8", errors="replace")[-2000:]
