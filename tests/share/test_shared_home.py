"""A home that several machines mount: they do not touch each other's leases and notebooks."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpuyard.share.notebook.records import Notebook, read_records, write_record
from tests.conftest import MACHINE
from tests.share.conftest import needs_root

pytestmark = MACHINE
SET_UP = (
    "from gpuyard.share.config import own_directory as own; from gpuyard.share.setup import set_up; "
    "set_up(own(), fake_gpus=1)"
)


class Host:
    """Another machine with its own name and boot, and the same disks as this one."""

    def __init__(self, name: str, directory: Path) -> None:
        self.boot_id = directory / f"boot-of-{name}"
        self.boot_id.write_text(f"boot of {name}\n")
        self.name = name

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        become = 'mount --bind "$1" /proc/sys/kernel/random/boot_id && hostname "$2" && shift 2 && exec "$@"'
        inside = (
            "sh",
            "-c",
            become,
            "sh",
            str(self.boot_id),
            self.name,
            sys.executable,
            *arguments,
        )
        return subprocess.Popen(
            ("unshare", "--mount", "--uts", *inside),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str) -> tuple[int, str, str]:
        process = self.start(*arguments)
        output, error_output = process.communicate(timeout=60)
        return process.returncode, output, error_output


@needs_root
def test_a_lease_of_another_machine_with_the_same_home_does_not_end_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUYARD_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("GPUYARD_SHARE_DIR", raising=False)
    ours, other = Host("ours", tmp_path), Host("other", tmp_path)
    for host in (ours, other):
        status, _, error_output = host.run("-c", SET_UP)
        if "unshare" in error_output or "mount" in error_output:
            pytest.skip(f"no namespaces here: {error_output}")
        assert (status, error_output) == (0, "")
    lease = ("-m", "gpuyard", "lease", "1", "--now", "--")
    holder = ours.start(*lease, "sh", "-c", "echo up; exec sleep 60")
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "up\n"
        assert other.run(*lease, "echo", "theirs")[:2] == (0, "theirs\n")
        assert ours.run(*lease, "true")[0] == 75
    finally:
        os.killpg(holder.pid, signal.SIGKILL)
        holder.communicate()


@needs_root
def test_a_share_of_another_machine_on_the_same_disk_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has its own GPU 0, and would consider the other's leases dead, because their boot ID differs."""
    monkeypatch.setenv("GPUYARD_SHARE_DIR", str(tmp_path / "share"))
    ours, other = Host("ours", tmp_path), Host("other", tmp_path)
    set_up = ("-m", "gpuyard", "share", "setup", "--fake-gpus", "1", "--no-service")
    status, _, error_output = ours.run(*set_up)
    if "unshare" in error_output or "mount" in error_output:
        pytest.skip(f"no namespaces here: {error_output}")
    assert status == 0
    lease = ("-m", "gpuyard", "lease", "1", "--now", "--")
    holder = ours.start(*lease, "sh", "-c", "echo up; exec sleep 60")
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "up\n"
        for command in ((*lease, "true"), ("-m", "gpuyard", "who"), set_up):
            status, _, error_output = other.run(*command)
            assert status == 1 and "has the leases of the machine ours" in error_output
        assert ours.run(*lease, "true")[0] == 75
    finally:
        os.killpg(holder.pid, signal.SIGKILL)
        holder.communicate()
    ours.boot_id.write_text("its next boot\n")
    assert ours.run(*lease, "true")[0] == 0
    assert other.run(*set_up, "--move")[0] == 0
    assert other.run(*lease, "true")[0] == 0 and ours.run(*lease, "true")[0] == 1


def test_a_notebook_of_another_machine_is_neither_listed_nor_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUYARD_HOME", str(tmp_path))
    notebook = Notebook("0a1b2c3d", 8888, "token", "/", (0,), None, "ann", "ours")
    write_record(notebook, "{}")
    assert read_records() == [notebook]
    here = os.uname()
    elsewhere = os.uname_result((here.sysname, "other", here.release, here.version, here.machine))
    with monkeypatch.context() as there:
        there.setattr(os, "uname", lambda: elsewhere)
        assert read_records() == []
    assert read_records() == [notebook]
