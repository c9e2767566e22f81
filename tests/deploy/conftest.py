"""Two existing machines, emulated by a real sshd on this one (127.0.0.1, and 127.0.0.2 behind it), and real labs."""

import getpass
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gpuyard.deploy.deployment import load_deployment
from gpuyard.deploy.state import StateDirectory
from gpuyard.errors import GpuyardError
from gpuyard.lab.machines import LabMachine, check_disk
from tests.conftest import LAB_ROOTS
from tests.ssh_hosts import ssh_hosts

FILE = """
name: ours
cluster: {{name: ours, nodes: 2, machine: {{gpu: t4, gpus: 2}}, network: {{rate: 1 Gbit/s}}}}
target:
  kind: ssh
  machines:
    - {{name: localhost, address: 127.0.0.1, user: {user}, port: {port}}}
    - {{name: two, address: 127.0.0.2, user: {user}, port: {port}, through_head: true}}
shared: {shared}
environment: {environment}
"""


@dataclass(frozen=True)
class Up:
    """A deployment with two existing hosts."""

    file: str
    shared: Path
    state: StateDirectory


@pytest.fixture
def up(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Up]:
    hidden, shared = tmp_path / "hidden", tmp_path / "shared"
    hidden.mkdir()
    shared.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    (tmp_path / "me" / ".ssh").mkdir(parents=True)
    with ssh_hosts(tmp_path, hidden):
        port = (tmp_path / "sshd_config").read_text().split()[1]
        file = tmp_path / "ours.deployment.yaml"
        file.write_text(
            FILE.format(user=getpass.getuser(), port=port, shared=shared, environment=sys.prefix)
        )
        loaded = load_deployment(file)
        (home / "ssh").mkdir(parents=True)
        shutil.copy(tmp_path / "user_key", home / "ssh" / "id_ed25519")
        key = " ".join((tmp_path / "host_key.pub").read_text().split()[:2])
        hosts = loaded.target.hosts(loaded.deployment, {})
        with loaded.state.hold():  # as if we had made them, so that ssh knows their key and ours
            loaded.state.write_hosts(tuple(replace(host, host_key=key) for host in hosts))
        yield Up(str(file), shared, loaded.state)


@pytest.fixture
def can_deploy(
    can_make_labs: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[None]:
    del can_make_labs
    for program in ("debootstrap", "sshd", "ssh"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    pytest.importorskip("ansible_runner")
    monkeypatch.setenv("GPUYARD_ROOTS", str(LAB_ROOTS))
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        try:
            check_disk(tmp_path)
        except GpuyardError:  # the tests run in a container
            monkeypatch.setenv("GPUYARD_HOME", elsewhere)
        yield from _deploying()


def _deploying() -> Iterator[None]:
    yield
    state = StateDirectory("pair")
    for disk in (state.path / "disks").glob("node?"):  # of a test that failed
        if (pid := first_process(disk)) is not None:
            os.kill(pid, signal.SIGTERM)


def first_process(disk: Path) -> int | None:
    up = LabMachine(disk.name, disk).up
    return int((disk / "held.lock").read_text()) if up else None
