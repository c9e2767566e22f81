"""A machine for the target `ssh` that starts faster than a lab: its own Debian, processes, and small disk.

It uses this machine's loopback address. The user `ada` logs in with a key, and sudo needs her password. It disappears
when its first process ends.
"""

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.ssh_hosts import find_free_port, wait_for_sshd

USER, PASSWORD = "ada", "correct-horse-5d81c"
DISK_MEGABYTES = 24
LOG = "machine.log"
UNSHARED = ("unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child")
_START = """
set -e
mount -t tmpfs -o size={megabytes}m,mode=755 none "{disk}"
cd "{disk}"
mkdir upper work root
mount -t overlay overlay -o "lowerdir={base},upperdir={disk}/upper,workdir={disk}/work" root
mount -t proc proc root/proc
mount --rbind /dev root/dev
mount -t tmpfs -o mode=755 none root/run
mount -t tmpfs -o mode=1777 none root/tmp
mkdir root/run/sshd root/run/sudo
hostname one
echo "127.0.0.1 localhost one" > root/etc/hosts
cp "{keys}/host_key" root/etc/ssh/ssh_host_ed25519_key
rm -rf root/etc/apt/sources.list root/etc/apt/sources.list.d/*
chroot root useradd -m -s /bin/bash {user}
echo "{user}:{password}" | chroot root chpasswd
echo "{user} ALL=(ALL) ALL" > root/etc/sudoers.d/ada
for home in root home/{user}; do
    mkdir -p "root/$home/.ssh"
    cp "{keys}/user_key.pub" "root/$home/.ssh/authorized_keys"
done
exec chroot root /usr/sbin/sshd -D -e -p {port} -o ListenAddress=127.0.0.1 -o HostKey=/etc/ssh/ssh_host_ed25519_key \\
    -o StrictModes=no -o PasswordAuthentication=no -o PidFile=none
"""
_SSH = """#!/bin/sh
exec {ssh} -o UserKnownHostsFile=/dev/null -o StrictHostKeyChecking=no -o LogLevel=ERROR \\
    -o IdentitiesOnly=yes -i "{keys}/user_key" "$@"
"""
FILE = """
name: bare
cluster: {{name: bare, nodes: 1, machine: {{gpu: t4, gpus: 1}}}}
target:
  kind: ssh
  machines: [{{name: one, address: 127.0.0.1, user: {user}, port: {port}}}]
head: {roles}
environment: /usr
"""


@dataclass(frozen=True)
class BareMachine:
    """A machine that is up."""

    programs: Path
    """The directory of an `ssh` that has the key and trusts the machine."""
    port: int
    directory: Path

    def run(self, command: str, *, seconds: float = 60) -> str:
        """Run a command as root."""
        argv = (str(self.programs / "ssh"), "-p", str(self.port), "root@127.0.0.1", command)
        done = subprocess.run(argv, capture_output=True, text=True, timeout=seconds, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def deployment(self, *, user: str = USER, roles: str = "[]", port: int | None = None) -> str:
        path = self.directory / "bare.deployment.yaml"
        path.write_text(FILE.format(user=user, roles=roles, port=port or self.port))
        return str(path)


def make_keys(directory: Path) -> tuple[Path, Path]:
    """Create the keys of the machine and its user; return their directory, and that of an `ssh` with the user's key."""
    keys, programs = directory / "keys", directory / "programs"
    keys.mkdir()
    programs.mkdir()
    for key in ("host_key", "user_key"):
        argv = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(keys / key))
        subprocess.run(argv, check=True)
    ssh = programs / "ssh"
    ssh.write_text(_SSH.format(ssh=shutil.which("ssh"), keys=keys))
    ssh.chmod(0o755)
    return keys, programs


@contextmanager
def first_process(argv: Sequence[str], directory: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a machine's first process, whose output goes to the log; the machine ends with it."""
    with (directory / LOG).open("wb") as log:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def bare_machine(base: Path, directory: Path) -> Iterator[BareMachine]:
    """Start a machine from a Debian root; needs root and ssh-keygen."""
    disk = directory / "disk"
    disk.mkdir(parents=True)
    keys, programs = make_keys(directory)
    port = find_free_port()
    script = _START.format(
        base=base,
        disk=disk,
        keys=keys,
        port=port,
        user=USER,
        password=PASSWORD,
        megabytes=DISK_MEGABYTES,
    )
    with first_process((*UNSHARED, "sh", "-c", script), directory) as process:
        wait_for_sshd(process, port, directory / LOG, "127.0.0.1")
        yield BareMachine(programs, port, directory)
