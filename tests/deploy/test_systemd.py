"""Services under a real systemd, as their roles set them up: notebooks of several users, firewall, and monitoring."""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.lab.machine_root import make_root
from tests.conftest import LAB_ROOTS, MACHINE, Cli
from tests.deploy.bare_machine import BareMachine
from tests.deploy.hub_people import EXPECTED, probe_command
from tests.deploy.systemd_machine import PACKAGES, systemd_machine

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0xPYkTyiuYF6mGVxsgPq9Kh1OQZ0FQ3Yw4bLZ1cPpR"
FILE = """
name: served
cluster: {{name: served, nodes: 1, machine: {{gpu: t4, gpus: 1}}}}
target:
  kind: ssh
  machines: [{{name: one, address: 127.0.0.1, user: root, port: {port}}}]
head: [base, training, jupyter, monitoring, firewall]
environment: {environment}
users:
  - {{name: ada, keys: [{key} ada]}}
  - {{name: bob, keys: [{key} bob]}}
"""
SERVICES = ("chrony", "gpuyard-jupyterhub", "prometheus", "prometheus-node-exporter", "ssh")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BareMachine]:
    programs = ("debootstrap", "unshare", "nsenter", "ssh", "ssh-keygen")
    if os.geteuid() != 0 or not all(map(shutil.which, programs)):
        pytest.skip(f"a machine of its own needs root and {', '.join(programs)}")
    pytest.importorskip("ansible_runner")
    pytest.importorskip("jupyterhub")
    monkeypatch.setenv("GPUYARD_ROOTS", str(LAB_ROOTS))
    before = kernel_parameters()
    with systemd_machine(make_root(PACKAGES), tmp_path / "machine") as created:
        monkeypatch.setenv("PATH", f"{created.programs}:{os.environ['PATH']}")
        yield created
    assert kernel_parameters() == before  # they are not that machine's alone


def kernel_parameters() -> dict[str, str]:
    names = ("fs/protected_symlinks", "fs/protected_hardlinks", "kernel/core_pattern")
    return {name: Path("/proc/sys", name).read_text() for name in names}


@MACHINE
@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_roles_start_their_services_and_several_people_have_notebooks_of_their_own(
    cli: Cli, machine: BareMachine, tmp_path: Path
) -> None:
    file = tmp_path / "served.deployment.yaml"
    file.write_text(FILE.format(port=machine.port, environment=sys.prefix, key=KEY))
    cli("deploy", "up", str(file))
    assert machine.run(f"systemctl is-active {' '.join(SERVICES)}").split() == ["active"] * 5
    again = json.loads(cli("deploy", "up", str(file), "--json").stdout)
    assert again["changed_tasks"] == {"one": 0}

    machine.run("nft flush ruleset && systemctl restart gpuyard-firewall")  # as at the next start
    assert "policy drop" in machine.run("nft list table inet gpuyard")
    assert machine.run("systemctl is-enabled gpuyard-firewall") == "enabled\n"

    assert json.loads(machine.run(probe_command(), seconds=400)) == EXPECTED
    sockets = {line.split()[3] for line in machine.run("ss -Hltn").splitlines()}
    assert "127.0.0.1:8000" in sockets
    assert {address for address in sockets if not address.startswith(("127.", "[::1]"))} == set()

    machine.run("systemctl kill --kill-whom=main --signal=KILL gpuyard-jupyterhub")
    machine.run("until systemctl is-active gpuyard-jupyterhub; do sleep 1; done")
