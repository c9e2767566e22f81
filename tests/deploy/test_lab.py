"""A real deployment on this machine: Terraform makes two hosts, Ansible configures them, `verify` measures them."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.deploy.state import StateDirectory
from gpuyard.errors import GpuyardError
from gpuyard.files import home as own_home
from gpuyard.lab.machines import Machine, check_disk
from tests.command_line import ROOT
from tests.conftest import Cli
from tests.lab.conftest import namespaces

FILE = "examples/pair.deployment.yaml"
_ROOTS = Path(sys.prefix) / "lab-roots"  # debootstrap takes minutes, so it is kept beside the tools


@pytest.fixture
def can_deploy(
    can_make_labs: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[None]:
    del can_make_labs
    for program in ("debootstrap", "sshd", "ssh"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    pytest.importorskip("ansible_runner")
    monkeypatch.setenv("GPUYARD_ROOTS", str(_ROOTS))
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
        if (pid := _first_process(disk)) is not None:
            os.kill(pid, signal.SIGTERM)


def _first_process(disk: Path) -> int | None:
    up = Machine(disk.name, disk).up
    return int((disk / "held.lock").read_text()) if up else None


@pytest.mark.timeout(1500)
@pytest.mark.usefixtures("can_deploy")
def test_a_pair_of_machines_is_made_verified_unchanged_repaired_and_removed(cli: Cli) -> None:
    home = own_home()
    os.chdir(ROOT)
    before = namespaces()
    planned = json.loads(cli("deploy", "plan", FILE, "--json").stdout)
    assert planned["changes"] == {"added": 3, "changed": 0, "removed": 0}
    assert not (home / "deployments").exists() or not list((home / "deployments").iterdir())

    made = json.loads(cli("deploy", "up", FILE, "--json").stdout)
    assert made["changes"]["added"] == 3
    assert all(made["changed_tasks"].values())
    verdict = json.loads(cli("deploy", "verify", FILE, "--json").stdout)
    assert verdict["ok"], verdict
    found = {(check["check"], check["host"]) for check in verdict["checks"]}
    assert {("shared directory", "node1"), ("open ports", "node0")} <= found
    assert ("all-reduce between all", "all") in found
    assert "collectives" in cli("results", "list", "--kind", "collectives").stdout

    again = json.loads(cli("deploy", "up", FILE, "--json").stdout)
    assert again["changes"] == {"added": 0, "changed": 0, "removed": 0}
    assert again["changed_tasks"] == {"node0": 0, "node1": 0}

    _break(home)
    broken = json.loads(cli("deploy", "verify", FILE, "--json", status=1).stdout)
    assert {(c["check"], c["host"]) for c in broken["checks"] if not c["ok"]} == {
        ("shared directory", "node1")
    }
    os.kill(_first_process(StateDirectory("pair").path / "disks" / "node0") or 0, signal.SIGTERM)
    repaired = json.loads(cli("deploy", "up", FILE, "--json").stdout)
    assert repaired["changes"]["added"] == 1
    assert json.loads(cli("deploy", "verify", FILE, "--json").stdout)["ok"]

    assert json.loads(cli("deploy", "down", FILE, "--json").stdout)["remains"] == []
    assert namespaces() <= before
    assert "There is no deployment" in cli("deploy", "status").stdout


def _break(home: Path) -> None:
    """The mount of the second machine goes."""
    config = home / "deployments/pair/ssh_config"
    subprocess.run(("ssh", "-F", str(config), "node1", "umount", "/shared"), check=True, timeout=60)


SLURM = """
name: pair
cluster: {name: pair, nodes: 2, machine: {gpu: t4, gpus: 2}, network: {rate: 1 Gbit/s}}
target: {kind: lab}
head: [base, shared-storage, slurm, training]
workers: [base, shared-storage, slurm, training]
"""


@pytest.mark.timeout(2400)
@pytest.mark.soak
@pytest.mark.usefixtures("can_deploy")
def test_slurm_gives_out_every_gpu_and_is_repaired(cli: Cli, tmp_path: Path) -> None:
    home = own_home()
    file = tmp_path / "slurm.deployment.yaml"
    file.write_text(SLURM)
    cli("deploy", "up", str(file))
    verdict = json.loads(cli("deploy", "verify", str(file), "--json").stdout)
    assert verdict["ok"], verdict
    assert {c["check"]: c["found"] for c in verdict["checks"]}["a job on all nodes"] == "2 × 2 GPUs"
    again = json.loads(cli("deploy", "up", str(file), "--json").stdout)
    assert again["changed_tasks"] == {"node0": 0, "node1": 0}
    config = home / "deployments/pair/ssh_config"
    ssh = ("ssh", "-F", str(config), "node1")
    subprocess.run((*ssh, "pkill", "-9", "-x", "slurmd"), check=True, timeout=60)
    broken = json.loads(cli("deploy", "verify", str(file), "--json", status=1).stdout)
    assert not {c["check"]: c["ok"] for c in broken["checks"]}["a job on all nodes"]
    cli("deploy", "up", str(file))
    assert json.loads(cli("deploy", "verify", str(file), "--json").stdout)["ok"]
    key = subprocess.run(
        (*ssh, "base64", "-w0", "/etc/munge/munge.key"), check=True, capture_output=True, timeout=60
    ).stdout.decode()
    kept = [p for p in (home / "deployments").rglob("*") if p.is_file() and "disks" not in p.parts]
    assert kept
    assert not any(key.encode() in path.read_bytes() for path in kept)
    cli("deploy", "down", str(file))


@pytest.mark.timeout(900)
@pytest.mark.soak
@pytest.mark.usefixtures("can_deploy")
def test_an_up_that_was_killed_goes_on_and_no_second_one_runs_beside_it(cli: Cli) -> None:
    home = own_home()
    os.chdir(ROOT)
    process = subprocess.Popen(
        (sys.executable, "-P", "-m", "gpuyard", "deploy", "up", FILE), stderr=subprocess.DEVNULL
    )
    state = home / "deployments/pair"
    deadline = time.monotonic() + 300
    while not (state / "hosts.json").exists():  # machines are there, roles are not
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert "another gpuyard is changing" in cli("deploy", "up", FILE, status=1).stderr
    process.kill()
    process.wait()
    cli("deploy", "up", FILE)
    assert json.loads(cli("deploy", "verify", FILE, "--json").stdout)["ok"]
    cli("deploy", "down", FILE)
