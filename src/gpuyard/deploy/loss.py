"""List the losses if machines are removed: files in the shared storage, and jobs that run or wait.

The machines themselves answer over ssh. One that does not answer is named, because it may hold either.
"""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from gpuyard.deploy.access.remote import HasState, as_root_if_possible, run_remote
from gpuyard.deploy.state import Host
from gpuyard.errors import GpuyardError
from gpuyard.units import format_bytes

_MAX_THREADS = 16
# Runs with the machine's own Python, which Ansible needs too.
_SCRIPT = """
import json, os, pwd, subprocess, sys
shared, counted, slurm_nodes = sys.argv[1:4]
processes, files, size = [], 0, 0

def identify(path):
    status = os.stat(path)
    return status.st_dev, status.st_ino

try:
    target = identify(shared) if shared else None
except OSError:
    target = None

def works_in_shared(pid):
    # by identity, because a container or another mount namespace has other paths
    path, child = "/proc/" + pid + "/cwd", None
    while (folder := identify(path)) != child:
        if folder == target:
            return True
        path, child = path + "/..", folder
    return False

for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        user = pwd.getpwuid(os.stat("/proc/" + pid).st_uid).pw_name
        argv = open("/proc/" + pid + "/cmdline", errors="replace").read().split("\\0")
        processes.append([user, int(pid), works_in_shared(pid), argv])
    except (OSError, KeyError):
        pass
for folder, _, names in os.walk(shared) if counted else ():
    for name in names:
        try:
            size += os.lstat(os.path.join(folder, name)).st_size
            files += 1
        except OSError:
            pass
queue = ["squeue", "--noheader", "--format=%i %u %T %j"]
queue += ["--nodelist=" + slurm_nodes] if slurm_nodes else []
try:
    jobs = subprocess.run(queue, capture_output=True, text=True, timeout=20).stdout.splitlines()
except (OSError, subprocess.TimeoutExpired):
    jobs = []
json.dump({
    "processes": processes, "files": files, "bytes": size, "jobs": jobs,
}, sys.stdout)
"""
# Programs that wait for people or serve them; a job that such a program started counts itself.
_NOT_JOBS = {
    *("sh", "dash", "bash", "zsh", "fish", "login", "tmux", "screen", "ssh-agent", "gpg-agent"),
    *("sshd", "sshd-session", "sftp-server", "systemd", "(sd-pam)", "dbus-daemon", "sudo", "su"),
}


@dataclass(frozen=True)
class Loss:
    """The machines that would be removed, and what would be lost with them."""

    machines: tuple[str, ...]
    shared: str | None
    """The shared directory, if its disk is on one of the machines."""
    files: int
    bytes: int
    jobs: tuple[str, ...]
    unreachable: tuple[str, ...]

    def covers(self, other: "Loss") -> bool:
        """Return whether the other loss has no machine, and not more files or bytes, beyond this one."""
        machines = {*other.machines} <= {*self.machines}
        unreachable = {*other.unreachable} <= {*self.unreachable}
        return machines and unreachable and other.files <= self.files and other.bytes <= self.bytes

    def describe(self) -> str:
        """Return what would be deleted, as the end of a sentence."""
        count = f"{len(self.machines)} machine{'' if len(self.machines) == 1 else 's'}"
        text = f"{count} ({', '.join(self.machines)}) with all files on them"
        if self.files:
            files = f"{self.files:,} file{'' if self.files == 1 else 's'}"
            text += f", including {self.shared} ({files}, {format_bytes(self.bytes)})"
        if self.unreachable:
            names = ", ".join(self.unreachable)
            text += f"; gpuyard cannot see what runs on {names}, because ssh does not reach it"
        return text


def inspect_loss(
    reachable: HasState,
    lost: Sequence[Host],
    hosts: Sequence[Host],
    *,
    shared: str | None,
    people: Sequence[str],
    shared_is_on_head: bool = True,
) -> Loss:
    """Ask the machines what would be lost with some of them; `hosts` are all, of which the first is the head.

    If the shared storage is not on the head, it is lost only with all machines. Jobs are those of Slurm on these
    machines, the processes of people, and processes that work in the shared storage.
    """
    head = hosts[0]
    everything = len(lost) == len(hosts)
    shared_path = shared if everything or (shared_is_on_head and head in lost) else None
    names = [] if everything else [host.name for host in lost]
    jobs: list[str] = []
    unreachable = []
    files = size = 0
    inspected = list(dict.fromkeys((head, *lost)))  # the head answers for Slurm

    def ask(host: Host) -> dict[str, Any] | None:
        counted = shared_path is not None and host == head
        with suppress(GpuyardError):
            return _ask(reachable, host, shared, ",".join(names), counted=counted)
        return None

    with ThreadPoolExecutor(min(_MAX_THREADS, len(inspected))) as pool:
        reports = list(pool.map(ask, inspected))
    for host, report in zip(inspected, reports, strict=True):
        if report is None:
            unreachable.append(host.name)
            continue
        if host == head:
            files, size = report["files"], report["bytes"]
            jobs += [f"Slurm job {line.strip()}" for line in report["jobs"]]
        if host in lost:
            jobs += _find_jobs(report["processes"], host, people)
    return Loss(
        tuple(host.name for host in lost), shared_path, files, size, tuple(jobs), tuple(unreachable)
    )


def _ask(
    reachable: HasState, host: Host, shared: str | None, slurm_nodes: str, *, counted: bool
) -> dict[str, Any]:
    path = f"{shared}/." if shared else ""  # the dot follows a link
    command = f"python3 -I - '{path}' '{'counted' if counted else ''}' '{slurm_nodes}'"
    once = ("-o", "ConnectionAttempts=1")
    output = run_remote(reachable, host, as_root_if_possible(command), _SCRIPT, once)
    try:
        document = json.loads(output)
    except ValueError:
        raise GpuyardError(f"{host.name} gave no usable answer") from None
    return dict(document)


def _find_jobs(
    processes: Sequence[tuple[str, int, bool, list[str]]], host: Host, people: Sequence[str]
) -> list[str]:
    jobs = []
    for user, pid, inside, argv in processes:
        program = argv[0].rpartition("/")[2].lstrip("-").split(":")[0]
        is_notebook_server = any("jupyter" in part for part in argv[:3])
        works = program and program not in _NOT_JOBS and not is_notebook_server
        if works and (user in people or inside):
            jobs.append(f"{' '.join(argv).strip()[:60]} ({user} on {host.name}, process {pid})")
    return jobs
