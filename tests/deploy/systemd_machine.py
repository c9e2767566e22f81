"""A machine for the target `ssh` whose first process is systemd: its own Debian, processes, network, and services.

It disappears when its first process ends. It shares this machine's clock, so its chrony is configured not to set it.
"""

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.deploy.bare_machine import LOG, UNSHARED, BareMachine, first_process, make_keys
from tests.ssh_hosts import find_free_port

PACKAGES = (
    "chrony",
    "dbus",
    "docker.io",
    "nfs-kernel-server",
    "nftables",
    "node-configurable-http-proxy",
    "node-fast-safe-stringify",  # provides what the former needs, which debootstrap does not see
    "prometheus",
    "prometheus-node-exporter",
    "systemd",
    "systemd-sysv",
)
_SECONDS = 120.0
_HERE = sorted({sys.prefix, sys.base_prefix, str(Path(__file__).parents[2])} - {"/usr"})
_START = """
set -e
ip link set lo up
mount -t tmpfs -o mode=755 none "{disk}"
cd "{disk}"
mkdir upper work root
mount -t overlay overlay -o "lowerdir={base},upperdir={disk}/upper,workdir={disk}/work" root
mount -t proc proc root/proc
# systemd sets the kernel's parameters as its machine starts; this kernel is everybody's
for kept in sys sysrq-trigger; do
    [ -e root/proc/$kept ] || continue
    mount --bind root/proc/$kept root/proc/$kept
    mount -o remount,bind,ro root/proc/$kept
done
mount -t sysfs -o ro sysfs root/sys
if [ -d /sys/fs/cgroup/systemd ]; then
    mount -t tmpfs -o mode=755 none root/sys/fs/cgroup
    mkdir root/sys/fs/cgroup/systemd
    mount -t cgroup -o none,name=systemd cgroup root/sys/fs/cgroup/systemd
else
    mount -t cgroup2 cgroup2 root/sys/fs/cgroup
fi
mount -t tmpfs -o mode=755 none root/dev
for device in null zero full random urandom tty; do
    touch root/dev/$device
    mount --bind /dev/$device root/dev/$device
done
mkdir root/dev/pts root/dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts root/dev/pts
ln -s pts/ptmx root/dev/ptmx
mount -t tmpfs -o mode=755 none root/run
mount -t tmpfs -o mode=1777 none root/tmp
for seen in {seen}; do
    mkdir -p "root$seen"
    mount --bind "$seen" "root$seen"
    mount -o remount,bind,ro "root$seen"
done
hostname one
echo "127.0.0.1 localhost one" > root/etc/hosts
cp "{keys}/host_key" root/etc/ssh/ssh_host_ed25519_key
cat > root/etc/ssh/sshd_config << END
Include /etc/ssh/sshd_config.d/*.conf
Port {port}
ListenAddress 127.0.0.1
HostKey /etc/ssh/ssh_host_ed25519_key
StrictModes no
Subsystem sftp internal-sftp
END
chmod 711 root/root
mkdir -p root/root/.ssh
cp "{keys}/user_key.pub" root/root/.ssh/authorized_keys
echo 'DAEMON_OPTS="-F 1 -x"' > root/etc/default/chrony
rm -rf root/etc/apt/sources.list root/etc/apt/sources.list.d/*
touch root/var/lib/apt/periodic/update-success-stamp 2>/dev/null || true
chroot root systemctl --quiet disable prometheus prometheus-node-exporter chrony docker nfs-kernel-server nfs-blkmap rpcbind
echo {identity} > root/etc/machine-id
cd root
pivot_root . mnt
umount -l /mnt
exec env -i container=gpuyard PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --log-target=console --unit=multi-user.target
"""


@contextmanager
def systemd_machine(base: Path, directory: Path) -> Iterator[BareMachine]:
    """Start a machine from a Debian root with systemd; needs root."""
    disk = directory / "disk"
    disk.mkdir(parents=True)
    keys, programs = make_keys(directory)
    port = find_free_port()
    script = _START.format(
        base=base, disk=disk, keys=keys, port=port, seen=" ".join(_HERE), identity="5d" * 16
    )
    group = _control_group(f"gpuyard-test-{port}")
    own = (*UNSHARED, "--net", "--cgroup")
    joined = f'echo $$ > "{group}/cgroup.procs" && exec "$@"'
    argv = ("sh", "-c", joined, "sh", *own, "sh", "-c", script)
    try:
        with first_process(argv, directory) as process:
            ssh = programs / "ssh"
            inside = f"nsenter --net=/proc/{process.pid}/ns/net {shutil.which('ssh')}"
            ssh.write_text(ssh.read_text().replace(f"exec {shutil.which('ssh')}", f"exec {inside}"))
            machine = BareMachine(programs, port, directory)
            _wait(machine, process)
            yield machine
    finally:
        _remove(group)


def _wait(machine: BareMachine, process: "subprocess.Popen[bytes]") -> None:
    """Wait until systemd has started all services, including sshd."""
    deadline = time.monotonic() + _SECONDS
    while True:
        log = (machine.directory / LOG).read_text()
        assert process.poll() is None, log
        assert time.monotonic() < deadline, log
        with suppress(AssertionError, subprocess.TimeoutExpired):
            machine.run("systemctl is-active multi-user.target")
            return
        time.sleep(0.5)


def _control_group(name: str) -> Path:
    """Create a separate control group, so that everything systemd creates in it can be removed."""
    named = Path("/sys/fs/cgroup/systemd")
    group = (named if named.is_dir() else named.parent) / name
    group.mkdir()
    return group


def _remove(group: Path) -> None:
    """Remove the control group when its last process has ended."""
    deadline = time.monotonic() + _SECONDS
    while group.exists():
        assert time.monotonic() < deadline, f"{group} is still in use"
        for path in (*sorted(group.rglob("*"), reverse=True), group):
            if path.is_dir():
                with suppress(OSError):
                    path.rmdir()
        time.sleep(0.1)
