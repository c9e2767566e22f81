"""gpuyard's Terraform provider in a user's own HCL."""

import contextlib
import importlib
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.deploy.terraform.run import Changes, Terraform
from gpuyard.deploy.terraform.ssh_host import scan_host_key
from gpuyard.errors import GpuyardError, UserMistake
from tests.command_line import ROOT
from tests.deploy.provisioning import quiet

HOST = """
terraform {
  required_providers {
    gpuyard = {
      source = "terraform.local/gpuyard/gpuyard"
    }
  }
}
variable "port" {
  type = number
}
resource "gpuyard_ssh_host" "mine" {
  address = "127.0.0.1"
  port    = var.port
}
output "host_key" {
  value = gpuyard_ssh_host.mine.host_key
}
"""


class Sshd:
    """An sshd on this machine whose host key can be changed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, key: str) -> str:
        path = self.directory / key
        if not path.exists():
            subprocess.run(
                ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)), check=True
            )
        Path("/run/sshd").mkdir(exist_ok=True)
        argv = (
            shutil.which("sshd") or "/usr/sbin/sshd", "-D", "-e", "-f", "/dev/null", "-h", str(path), "-p", str(self.port),
            "-o", "ListenAddress=127.0.0.1", "-o", "PidFile=none", "-o", "UsePAM=no",
        )  # fmt: skip
        self.process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while scan_host_key("127.0.0.1", self.port) is None:
            assert time.monotonic() < deadline
            assert self.process.poll() is None
        return " ".join(path.with_suffix(".pub").read_text().split()[:2])

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait()


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    pytest.importorskip("tf")
    if shutil.which("sshd") is None or shutil.which("ssh-keyscan") is None:
        pytest.skip("sshd is not installed")
    server = Sshd(tmp_path)
    yield server
    server.stop()


@pytest.mark.timeout(300)
def test_a_host_is_known_by_its_key_missed_and_not_mistaken(sshd: Sshd, tmp_path: Path) -> None:
    terraform = Terraform(tmp_path / "tf")
    terraform.write(HOST, {"port": sshd.port})
    with pytest.raises(GpuyardError, match=r"no sshd answers at 127\.0\.0\.1"):
        terraform.apply(quiet)
    key = sshd.start("first")
    assert terraform.plan() == Changes(1, 0, 0)
    assert terraform.apply(quiet) == Changes(1, 0, 0)
    assert terraform.outputs() == {"host_key": key}
    assert terraform.plan() == Changes()
    sshd.stop()
    assert terraform.plan() == Changes(1, 0, 0)
    assert sshd.start("second") != key
    with pytest.raises(GpuyardError, match=r"host key of 127\.0\.0\.1 has changed"):
        terraform.plan()
    sshd.stop()
    assert sshd.start("first") == key
    assert terraform.destroy(quiet) == Changes(0, 0, 1)
    assert scan_host_key("127.0.0.1", sshd.port) == key  # the machine itself is unchanged


@pytest.mark.parametrize(("address", "port"), [("-oX", 22), ("a b", 22), ("", 22), ("host", 0)])
def test_invalid_addresses_are_never_requested(address: str, port: int) -> None:
    with pytest.raises(UserMistake):
        scan_host_key(address, port)


@pytest.mark.timeout(1500)  # tests of other checkouts may have labs
@pytest.mark.usefixtures("can_make_labs")
def test_the_example_is_applied_for_real(tmp_path: Path) -> None:
    pytest.importorskip("tf")
    terraform = Terraform(tmp_path)
    terraform.write((ROOT / "examples/terraform/main.tf").read_text(), {})
    assert terraform.plan() == Changes(1, 0, 0)
    try:
        assert terraform.apply(quiet) == Changes(1, 0, 0)
        assert len(terraform.outputs()["addresses"]) == 2
        assert terraform.plan() == Changes()
        terraform.write(
            (ROOT / "examples/terraform/main.tf").read_text(),
            {"rate_bytes_per_second": 125_000_000},
        )
        assert terraform.plan() == Changes(0, 1, 0)  # a new rate changes the network in place
        assert terraform.apply(quiet) == Changes(0, 1, 0)
        assert terraform.plan() == Changes()
    finally:
        terraform.destroy(quiet)
    assert terraform.list_resources() == []


def test_the_program_that_terraform_starts_is_installed() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, name = scripts["terraform-provider-gpuyard"].partition(":")
    pytest.importorskip("tf")
    assert callable(getattr(importlib.import_module(module), name))


def test_it_starts_without_importing_target_specs() -> None:
    """Terraform starts it several times per command."""
    code = "import sys, gpuyard.deploy.terraform.provider; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run((sys.executable, "-P", "-c", code), check=False).returncode == 0


def test_the_page_has_every_resource_and_attribute() -> None:
    pytest.importorskip("tf")
    from gpuyard.deploy.terraform.provider import GpuyardProvider

    page = (ROOT / "docs/terraform-provider.md").read_text()
    parts = dict(
        re.findall(r"^## `(gpuyard_\w+)`\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    )
    resources = {
        f"gpuyard_{resource.get_name()}": resource for resource in GpuyardProvider().get_resources()
    }
    assert set(parts) == set(resources)
    for name, resource in resources.items():
        for attribute in resource.get_schema().attributes:
            assert f"`{attribute.name}`" in parts[name], f"{name}.{attribute.name}"


def test_it_ends_with_a_terraform_that_was_killed() -> None:
    """A killed Terraform does not stop its providers."""
    starts = (
        "import subprocess, sys; from gpuyard.interpreter import module_argv; "
        "p = subprocess.Popen(module_argv('gpuyard.deploy.terraform.provider'), stdout=subprocess.PIPE); "
        "p.stdout.readline(); print(p.pid, flush=True); p.wait()"
    )
    with subprocess.Popen(
        (sys.executable, "-c", starts), stdout=subprocess.PIPE, text=True
    ) as terraform:
        assert terraform.stdout is not None
        provider = int(terraform.stdout.readline())
        handle = os.pidfd_open(provider)
        terraform.kill()
    try:
        assert select.select([handle], [], [], 60)[0], "it still runs"
    finally:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        os.close(handle)
