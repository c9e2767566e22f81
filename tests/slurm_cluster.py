"""A real Slurm for tests: separate daemons, nodes, and key, in their own namespaces on this machine.

All its processes are in one PID namespace, whose first process reads a pipe from this process: the cluster stops when the
tests exit for any reason. It has its own loopback, so it cannot conflict with another Slurm or port.
"""

import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

GPUS = 4
"""GPUs per node; Slurm knows only their indices."""
_PROGRAMS = ("munged", "slurmctld", "slurmd", "salloc", "srun", "unshare", "nsenter", "ip")
_DATABASE_PROGRAMS = ("mariadb-install-db", "mariadbd", "slurmdbd", "sacctmgr")
_READY_SECONDS = 60.0
_CLIENT_SECONDS = 240.0

# The node names do not resolve, as on a cluster where only Slurm knows them.
_CONFIGURATION = """\
ClusterName=gpuyard
SlurmctldHost=localhost{controller}
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
NodeName=DEFAULT CPUs=4 RealMemory=4000
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP
"""
_FIRST_PROCESS = """\
ip link set lo up
for number in $(seq "$2"); do ip address add "10.99.0.$number/32" dev lo; done
munged --foreground --force --key-file="$1/munge.key" --socket="$1/munge.socket" \
    --pid-file="$1/munged.pid" --log-file="$1/munged.log" --seed-file="$1/munged.seed" &
slurmctld -D &
for number in $(seq "$2"); do slurmd -D -N "node$number" & done
"""
# Each node has a network namespace of its own, in which its daemon and steps run, and a link to the controller's bridge.
_BRIDGE = """\
ip link set lo up
ip link add bridge type bridge
ip address add 10.99.0.254/24 dev bridge
ip link set bridge up
mkdir -p /run/netns
mount -t tmpfs none /run/netns
munged --foreground --force --key-file="$1/munge.key" --socket="$1/munge.socket" \
    --pid-file="$1/munged.pid" --log-file="$1/munged.log" --seed-file="$1/munged.seed" &
slurmctld -D &
"""
_LINKED_NODE = """\
ip netns add {name}
ip link add port{number} type veth peer name eth0 netns {name}
ip link set port{number} master bridge up
ip -n {name} link set lo up
ip -n {name} link set eth0 up
ip -n {name} address add 10.99.0.{number}/24 dev eth0
tc qdisc add dev port{number} root tbf rate {rate} burst 256kb limit 8mb
tc -n {name} qdisc add dev eth0 root tbf rate {rate} burst 256kb limit 8mb
sh -c '{join}exec nsenter --net=/run/netns/{name} slurmd -D -N {name}' &
"""
_STOP = """\
read -r _
kill -9 -1
rm -rf "$1"
"""
# This one is for a configuration with the directories of a real machine, which are mounted empty.
_SINGLE_MACHINE_PROCESS = """\
ip link set lo up
ip address add 10.99.0.1/32 dev lo # glibc resolves no address on a host that has only a loopback address
for place in /run /var/lib/slurm /var/log/slurm; do mount -t tmpfs none "$place" || exit 1; done
mkdir -p /run/munge /var/lib/slurm/slurmctld /var/lib/slurm/slurmd
chown slurm /var/lib/slurm/slurmctld /var/log/slurm
munged --foreground --force --key-file="$1/munge.key" --socket=/run/munge/munge.socket.2 \
    --pid-file="$1/munged.pid" --log-file="$1/munged.log" --seed-file="$1/munged.seed" &
eval "$3"
slurmctld -D &
slurmd -D &
"""
# An admin does the same: start the database, run accounts.sh, start slurmctld, and run accounts.sh again.
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
    """A running cluster."""

    first_process: int
    configuration: Path

    @property
    def enter(self) -> list[str]:
        """The prefix that runs a command inside the cluster."""
        return ["nsenter", f"--target={self.first_process}", "--net", "--pid", "--mount", "--root"]

    def find_daemon(self, *words: str) -> psutil.Process:
        """Find the daemon whose command line starts with these words."""
        (daemon,) = (p for p, command in self.processes() if command[: len(words)] == [*words])
        return daemon

    def processes(self) -> list[tuple[psutil.Process, list[str]]]:
        """List the running processes of the cluster with their command lines."""
        running = []
        for process in psutil.Process(self.first_process).children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # it exits in the meantime
                if process.status() != psutil.STATUS_ZOMBIE:
                    running.append((process, process.cmdline()))
        return running

    def run(
        self,
        *argv: str,
        environment: Mapping[str, str] | None = None,
        seconds: float = _CLIENT_SECONDS,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside the cluster."""
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
            timeout=seconds,
        )


@contextmanager
def slurm_cluster(nodes: int, settings: str = "") -> Iterator[SlurmCluster]:
    """Start a cluster with these additional settings; skip the test if this machine cannot run one."""
    with _temporary_directory() as directory:
        _write_configuration(directory, nodes, settings)
        with _run_cluster(directory, directory / "slurm.conf", _FIRST_PROCESS, nodes) as cluster:
            yield cluster


@contextmanager
def linked_slurm_cluster(
    links: Sequence[str], gpus: Sequence[int], groups: Mapping[int, Path]
) -> Iterator[SlurmCluster]:
    """Start a cluster whose nodes have links of these rates, GPUs of these numbers, and some of them a control group."""
    nodes = len(links)
    script = _BRIDGE
    for number, rate in enumerate(links, 1):
        group = groups.get(number)
        join = "" if group is None else f"echo $$ >{group}/cgroup.procs && "
        script += _LINKED_NODE.format(name=f"node{number}", number=number, rate=rate, join=join)
    with _temporary_directory(("tc",)) as directory:
        _write_configuration(directory, nodes, "", gpus, "(10.99.0.254)")
        with _run_cluster(directory, directory / "slurm.conf", script, nodes) as cluster:
            yield cluster


@contextmanager
def slurm_from_configuration(
    configuration: Path, *, database: bool = False
) -> Iterator[SlurmCluster]:
    """Start a one-machine cluster with an exported configuration and, optionally, its database."""
    with _temporary_directory(_DATABASE_PROGRAMS if database else ()) as directory:
        _write_key(directory)
        before = ""
        if database:
            before = _DATABASE
            settings = configuration.with_name("slurmdbd.conf")
            settings.touch(0o600)
            settings.write_text(_DATABASE_CONFIGURATION, encoding="utf-8")
            shutil.chown(settings, "slurm")
        with _run_cluster(directory, configuration, _SINGLE_MACHINE_PROCESS, 1, before) as cluster:
            yield cluster


@contextmanager
def _temporary_directory(more_programs: Sequence[str] = ()) -> Iterator[Path]:
    programs = (*_PROGRAMS, *more_programs)
    missing = [name for name in programs if shutil.which(name, path=_path()) is None]
    if missing:
        pytest.skip(f"a test Slurm needs Debian's slurm-wlm and munge: {missing[0]} not found")
    if os.geteuid() != 0:
        pytest.skip("a test Slurm needs root")
    directory = Path(tempfile.mkdtemp(prefix="gpuyard-slurm-"))
    directory.chmod(0o755)  # Every user reads the configuration and uses munge.
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _run_cluster(
    directory: Path, configuration: Path, first_process: str, nodes: int, before: str = ""
) -> Iterator[SlurmCluster]:
    unshare = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [*unshare, "sh", "-c", first_process + _STOP, "sh", str(directory), str(nodes), before],
            env={**os.environ, "PATH": _path(), "SLURM_CONF": str(configuration)},
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield _wait_until_ready(process, directory, configuration, nodes)
    finally:
        process.communicate(timeout=_READY_SECONDS)  # This closes the pipe.


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def _write_key(directory: Path) -> None:
    key = directory / "munge.key"
    key.touch(0o600)
    key.write_bytes(secrets.token_bytes(64))


def _write_configuration(
    directory: Path, nodes: int, settings: str, gpus: Sequence[int] = (), controller: str = ""
) -> None:
    (directory / "state").mkdir(mode=0o700)
    _write_key(directory)
    devices = [directory / f"gpu{number}" for number in range(GPUS)]
    for device in devices:
        os.mknod(device, 0o020_600, os.makedev(1, 3))  # a copy of /dev/null
    counts = dict(enumerate(gpus or [GPUS] * nodes, 1))
    lines = [
        f"NodeName=node{n} NodeHostname=localhost NodeAddr=10.99.0.{n} Port={17000 + n} Gres=gpu:t4:{count}"
        for n, count in counts.items()
    ]
    files = {
        "slurm.conf": _CONFIGURATION.format(
            directory=directory, nodes="\n".join(lines), controller=controller
        )
        + settings,
        "gres.conf": "".join(
            f"NodeName=node{n} Name=gpu Type=t4 File={device}\n"
            for n, count in counts.items()
            for device in devices[:count]
        ),
        "cgroup.conf": "",
    }
    for name, text in files.items():
        (directory / name).write_text(text, encoding="utf-8")


def _wait_until_ready(
    process: subprocess.Popen[bytes], directory: Path, configuration: Path, nodes: int
) -> SlurmCluster:
    deadline = time.monotonic() + _READY_SECONDS
    output = ""
    while time.monotonic() < deadline:
        if process.poll() is not None:
            pytest.skip(f"this machine has no namespaces for a test Slurm: {_log(directory)}")
        for child in psutil.Process(process.pid).children():
            cluster = SlurmCluster(child.pid, configuration)
            states = cluster.run("sinfo", "--noheader", "--Node", "--format=%T")
            output = states.stdout + states.stderr
            if states.stdout.split() == ["idle"] * nodes:
                return cluster
        time.sleep(0.1)
    raise AssertionError(f"Slurm did not start: {output}\n{_log(directory)}")


def _log(directory: Path) -> str:
    return (directory / "log").read_text(encoding="utf-8", errors="replace")[-2000:]
