"""A real sshd for tests that acts as two hosts: 127.0.0.1 and 127.0.0.2.

If root runs the tests, the hosts see an empty directory in place of this machine's temporary files, so all data between them
goes over the network. Their own temporary files are in `remote`.
"""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

HOSTS = ("127.0.0.1", "127.0.0.2")
_READY_SECONDS = 60.0
_SERVER = """\
Port {port}
ListenAddress 127.0.0.1
ListenAddress 127.0.0.2
HostKey {directory}/host_key
AuthorizedKeysFile {directory}/user_key.pub
PidFile none
PasswordAuthentication no
PermitRootLogin yes
StrictModes no
UsePAM no
MaxStartups 100
SetEnv TMPDIR={directory}/remote PATH={directory}/programs:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
"""
_CLIENT = """\
Port {port}
IdentityFile {directory}/user_key
IdentitiesOnly yes
StrictHostKeyChecking no
UserKnownHostsFile /dev/null
LogLevel ERROR
"""


@contextmanager
def ssh_hosts(directory: Path, temporary: Path) -> Iterator[Path]:
    """Yield the directory of an `ssh` that needs no password for the hosts; skip the test if sshd is missing."""
    sshd = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    ssh, keygen = shutil.which("ssh"), shutil.which("ssh-keygen")
    if sshd is None or ssh is None or keygen is None:
        pytest.skip("test hosts need Debian's openssh-server: sshd not found")
    port = find_free_port()
    for key in ("host_key", "user_key"):
        command = [keygen, "-q", "-t", "ed25519", "-N", "", "-f", str(directory / key)]
        subprocess.run(command, check=True)
    for name, text in (("sshd_config", _SERVER), ("ssh_config", _CLIENT)):
        (directory / name).write_text(text.format(port=port, directory=directory))
    programs = directory / "bin"
    programs.mkdir()
    (directory / "remote").mkdir()
    (programs / "ssh").write_text(f'#!/bin/sh\nexec {ssh} -F {directory}/ssh_config "$@"\n')
    (programs / "ssh").chmod(0o755)
    serve = [sshd, "-D", "-e", "-f", str(directory / "sshd_config")]
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # the chroot of its unprivileged process
        hide = f'mount -t tmpfs none "{temporary}" && exec "$@"'
        serve = ["unshare", "--mount", "sh", "-c", hide, "sh", *serve]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(serve, stdout=log, stderr=log)
    try:
        wait_for_sshd(process, port, directory / "log", HOSTS[-1])
        yield programs
    finally:
        process.terminate()
        process.wait()


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_sshd(process: subprocess.Popen[bytes], port: int, log: Path, address: str) -> None:
    """Wait until sshd accepts connections, or raise with its log."""
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection((address, port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError(f"sshd did not start: {log.read_text(errors='replace')}")
