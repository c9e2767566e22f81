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
from gpuyard.lab.machines import LabMachine, check_disk
from tests.command_line import ROOT
from tests.conftest import LAB_ROOTS, Cli
from tests.deploy.hub_people import EXPECTED, asking
from tests.lab.conftest import namespaces

FILE = "examples/pair.deployment.yaml"


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
        if (pid := _first_process(disk)) is not None:
            os.kill(pid, signal.SIGTERM)


def _first_process(disk: Path) -> int | None:
    up = LabMachine(disk.name, disk).up
    return int((disk / "held.lock").read_text()) if up else None


@pytest.mark.timeout(1500)
@pytest.mark.usefixtures("can_deploy")
def test_a_pair_of_machines_is_made_repaired_verified_unchanged_and_removed(cli: Cli) -> None:
    home = own_home()
    os.chdir(ROOT)
    before = namespaces()
    planned = json.loads(cli("deploy", "plan", FILE, "--json").stdout)
    assert planned["changes"] == {"added": 3, "changed": 0, "removed": 0}
    assert not (home / "deployments").exists() or not list((home / "deployments").iterdir())

    made = json.loads(cli("deploy", "up", FILE, "--json").stdout)
    assert made["changes"]["added"] == 3
    assert all(made["changed_tasks"].values())

    _unmount_on_the_worker(home)
    os.kill(_first_process(StateDirectory("pair").path / "disks" / "node0") or 0, signal.SIGTERM)
    repaired = json.loads(cli("deploy", "up", FILE, "--json").stdout)
    assert repaired["changes"]["added"] == 1
    assert repaired["changed_tasks"]["node1"] > 0

    verdict = json.loads(cli("deploy", "verify", FILE, "--json").stdout)
    assert verdict["ok"], verdict
    found = {(check["check"], check["host"]) for check in verdict["checks"]}
    assert {("shared directory", "node1"), ("open ports", "node0")} <= found
    assert {("all-reduce between all", "all"), ("training on two nodes", "node0, node1")} <= found
    assert "collectives" in cli("results", "list", "--kind", "collectives").stdout

    again = json.loads(cli("deploy", "up", FILE, "--json").stdout)
    assert again["changes"] == {"added": 0, "changed": 0, "removed": 0}
    assert again["changed_tasks"] == {"node0": 0, "node1": 0}

    assert json.loads(cli("deploy", "down", FILE, "--json").stdout)["remains"] == []
    assert namespaces() <= before
    assert "There is no deployment" in cli("deploy", "status").stdout


def _unmount_on_the_worker(home: Path) -> None:
    config = home / "deployments/pair/ssh_config"
    subprocess.run(("ssh", "-F", str(config), "node1", "umount", "/shared"), check=True, timeout=60)


WHOLE = """
name: pair
cluster: {name: pair, nodes: 3, machine: {gpu: t4, gpus: 2}, network: {rate: 1 Gbit/s}}
target: {kind: lab}
head: [base, shared-storage, slurm, training, jupyter, monitoring, firewall]
workers: [base, shared-storage, slurm, training, monitoring, firewall]
shared: /data/of/all
users:
  - {name: ada, keys: [ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0xPYkTyiuYF6mGVxsgPq9Kh1OQZ0FQ3Yw4bLZ1cPpR ada]}
"""


@pytest.mark.timeout(3000)
@pytest.mark.soak
@pytest.mark.usefixtures("can_deploy")
def test_a_cluster_with_every_role_works_is_repaired_and_leaves_nothing(
    cli: Cli, tmp_path: Path
) -> None:
    pytest.importorskip("jupyterlab")
    home = own_home()
    file = tmp_path / "whole.deployment.yaml"
    file.write_text(WHOLE)
    before = namespaces()
    _kill_up_midway(home, file)
    cli("deploy", "up", str(file))
    verdict = json.loads(cli("deploy", "verify", str(file), "--json").stdout)
    assert verdict["ok"], verdict
    found = {(c["check"], c["host"]): c["found"] for c in verdict["checks"]}
    assert found["a job on all nodes", "all"] == "3 × 2 GPUs"
    assert found["notebooks", "node0"] == "200 with the token, 403 without"
    assert {("monitoring", "node2"), ("firewall", "node1"), ("job accounts", "node0")} <= set(found)
    assert ("training on two nodes", "node0, node1") in found
    assert "spoken-digits-linear" in cli("results", "list").stdout
    again = json.loads(cli("deploy", "up", str(file), "--json").stdout)
    assert again["changed_tasks"] == {"node0": 0, "node1": 0, "node2": 0}
    assert _on(home, "node1", "id", "-u", "ada") == _on(home, "node0", "id", "-u", "ada")
    assert _on(home, "node1", "passwd", "--status", "ada").split()[1] == "L"  # keys only

    _on(home, "node1", "pkill", "-9", "-x", "slurmd")
    _on(home, "node2", "umount", "/data/of/all")
    _on(home, "node2", "nft", "flush", "ruleset")
    _on(home, "node0", "pkill", "-9", "-f", "jupyterlab")
    _on(home, "node1", "pkill", "-9", "-x", "prometheus-node")
    broken = json.loads(cli("deploy", "verify", str(file), "--json", status=1).stdout)
    assert {(c["check"], c["host"]) for c in broken["checks"] if not c["ok"]} == {
        ("a job on all nodes", "all"),
        ("shared directory", "node2"),
        ("firewall", "node2"),
        ("notebooks", "node0"),
        ("monitoring", "node1"),
    }
    cli("deploy", "up", str(file))
    assert json.loads(cli("deploy", "verify", str(file), "--json").stdout)["ok"]

    _no_secret_is_kept(home)
    assert json.loads(cli("deploy", "down", str(file), "--json").stdout)["remains"] == []
    assert namespaces() <= before
    assert not list((home / "deployments").iterdir())


def _kill_up_midway(home: Path, file: Path) -> None:
    """In the middle of the roles."""
    said = home / "said"
    home.mkdir(exist_ok=True)
    with said.open("wb") as stderr:
        process = subprocess.Popen(
            (sys.executable, "-P", "-m", "gpuyard", "deploy", "up", str(file)),
            stderr=stderr,
            start_new_session=True,
        )
    disk = home / "deployments/pair/disks/node0/upper"
    deadline = time.monotonic() + 1200
    while not (disk / "etc/slurm/slurm.conf").exists():
        assert process.poll() is None, said.read_text()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _on(home: Path, machine: str, *argv: str, seconds: float = 60) -> str:
    config = home / "deployments/pair/ssh_config"
    line = ("ssh", "-F", str(config), machine, *argv)
    done = subprocess.run(line, check=False, timeout=seconds, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _no_secret_is_kept(home: Path) -> None:
    """Neither munge's key nor the token of the notebooks is in anything that the deployment keeps."""
    secrets = [
        _on(home, "node1", "base64", "-w0", "/etc/munge/munge.key"),
        _on(home, "node0", "cat", "/etc/gpuyard/jupyter_token").strip(),
    ]
    kept = [p for p in (home / "deployments").rglob("*") if p.is_file() and "disks" not in p.parts]
    assert kept
    for secret in secrets:
        assert len(secret) > 20
        assert not any(secret.encode() in path.read_bytes() for path in kept)


@pytest.mark.timeout(1800)
@pytest.mark.soak
@pytest.mark.usefixtures("can_deploy")
def test_debian_13_is_deployed_to_as_well(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "trixie.deployment.yaml"
    text = (ROOT / FILE).read_text()
    file.write_text(text.replace("{kind: lab}", "{kind: lab, release: trixie}"))
    assert "trixie" in file.read_text()
    cli("deploy", "up", str(file))
    assert _on(own_home(), "node1", "cat", "/etc/debian_version").startswith("13")
    verdict = json.loads(cli("deploy", "verify", str(file), "--json").stdout)
    assert verdict["ok"], verdict
    again = json.loads(cli("deploy", "up", str(file), "--json").stdout)
    assert again["changed_tasks"] == {"node0": 0, "node1": 0}
    assert json.loads(cli("deploy", "down", str(file), "--json").stdout)["remains"] == []


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


@pytest.mark.timeout(900)
@pytest.mark.soak
@pytest.mark.usefixtures("can_deploy")
@pytest.mark.parametrize("gone", ["disks/node1", "disks/node0"])
def test_a_down_that_was_killed_is_finished_by_the_next(
    cli: Cli, tmp_path: Path, gone: str
) -> None:
    """Killed when one machine is gone, whichever it is."""
    file = tmp_path / "pair.deployment.yaml"
    file.write_text(WHOLE.split("head:", maxsplit=1)[0] + "head: [base]\nworkers: [base]\n")
    before = namespaces()
    cli("deploy", "up", str(file))
    state = own_home() / "deployments/pair"
    assert (state / gone).is_dir()
    process = subprocess.Popen(
        (sys.executable, "-P", "-m", "gpuyard", "deploy", "down", str(file)),
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while (state / gone).is_dir():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert state.is_dir()
    done = cli("deploy", "down", str(file), "--json")
    assert json.loads(done.stdout)["remains"] == []
    assert namespaces() <= before
    assert not state.exists()
    assert "There is no deployment" in cli("deploy", "status").stdout


TEAM = """
name: pair
cluster: {name: pair, nodes: 1, machine: {gpu: t4, gpus: 1}}
target: {kind: lab}
head: [base, training, jupyter]
users:
  - {name: ada, keys: [ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0xPYkTyiuYF6mGVxsgPq9Kh1OQZ0FQ3Yw4bLZ1cPpR ada]}
  - {name: bob, keys: [ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0xPYkTyiuYF6mGVxsgPq9Kh1OQZ0FQ3Yw4bLZ1cPpR bob]}
"""


@pytest.mark.timeout(1800)
@pytest.mark.soak
@pytest.mark.usefixtures("can_deploy")
def test_several_people_have_notebooks_of_their_own_on_the_head_of_a_lab(
    cli: Cli, tmp_path: Path
) -> None:
    pytest.importorskip("jupyterhub")
    file = tmp_path / "pair.deployment.yaml"
    file.write_text(TEAM)
    cli("deploy", "up", str(file))
    again = json.loads(cli("deploy", "up", str(file), "--json").stdout)
    assert again["changed_tasks"] == {"node0": 0}
    verdict = json.loads(cli("deploy", "verify", str(file), "--json").stdout)
    assert verdict["ok"], verdict
    _on(own_home(), "node0", "chmod", "711", "/root")  # below which this host's Python may be
    assert json.loads(_on(own_home(), "node0", asking(), seconds=400)) == EXPECTED
    assert json.loads(cli("deploy", "down", str(file), "--json").stdout)["remains"] == []


BENCH = ("--batch", "32", "--link", "1 Gbit/s", "--time-per-point", "2 s")


@pytest.mark.timeout(1500)
@pytest.mark.soak
@pytest.mark.usefixtures("can_deploy")
def test_a_bench_is_shown_beside_its_prediction_stored_and_not_run_twice(
    cli: Cli, tmp_path: Path
) -> None:
    os.chdir(ROOT)
    cli("deploy", "up", FILE)
    planned = json.loads(cli("deploy", "bench", FILE, *BENCH, "--dry-run", "--json").stdout)
    page = tmp_path / "bench.html"
    said = json.loads(cli("deploy", "bench", FILE, *BENCH, "--json", "--html", str(page)).stdout)
    runs = said["runs"]
    assert [(run["series"], run["gpus"], run["nodes"]) for run in runs] == [
        ("one GPU of each machine", 1, 1),
        ("one GPU of each machine", 2, 2),
        ("one machine", 2, 1),
        ("all GPUs of each machine", 4, 2),
    ]
    assert len(runs) == planned["points"]
    for run in runs:
        assert run["synthetic_gpu"] == "t4"
        assert run["predicted_low"] <= run["predicted_samples_per_second"] <= run["predicted_high"]
        assert run["samples_per_second"] > 0
    assert runs[0]["scaling_efficiency"] == pytest.approx(1)
    assert said["measured"] == []  # emulated ones are no figures of a GPU
    assert "chart-efficiency" in page.read_text()
    stored = cli("results", "list", "--json").stdout
    assert all(run["id"] in stored for run in runs)
    again = cli("deploy", "bench", FILE, *BENCH, "--dry-run", "--json").stdout
    assert json.loads(again)["expected_seconds"] == 0
    shown = cli("deploy", "bench", FILE, *BENCH).stdout
    assert "No prediction starts from these runs" in shown
    assert json.loads(cli("deploy", "down", FILE, "--json").stdout)["remains"] == []
