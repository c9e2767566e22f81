"""A real deployment on this machine: Terraform creates two hosts, Ansible configures them, `verify` checks them."""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from gpuyard.deploy.state import StateDirectory
from gpuyard.files import home as own_home
from tests.command_line import ROOT
from tests.conftest import Cli
from tests.deploy.conftest import first_process
from tests.deploy.hub_people import EXPECTED, probe_command
from tests.docs.test_docs import fences
from tests.lab.conftest import namespaces

FILE = "examples/pair.deployment.yaml"


def _up(cli: Cli, file: str) -> Any:
    return json.loads(cli("deploy", "up", file, "--json").stdout)


def _verify(cli: Cli, file: str) -> dict[tuple[str, str], str]:
    """Verify the deployment; return what each check found, by check and host."""
    verdict = json.loads(cli("deploy", "verify", file, "--json").stdout)
    assert verdict["ok"], verdict
    return {(check["check"], check["host"]): check["detail"] for check in verdict["checks"]}


def _down(cli: Cli, file: str) -> None:
    assert json.loads(cli("deploy", "down", file, "--yes", "--json").stdout)["remains"] == []


@contextlib.contextmanager
def _kill_when(condition: Callable[[], bool], *arguments: str) -> Iterator[None]:
    """`gpuyard deploy ARGUMENTS` is killed with all that it started when this has happened and the block is done."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            (sys.executable, "-P", "-m", "gpuyard", "deploy", *arguments),
            stderr=output,
            start_new_session=True,
        )
        try:
            deadline = time.monotonic() + 1200
            while not condition():
                if process.poll() is not None:
                    output.seek(0)
                    pytest.fail(f"it ended before: {output.read().decode()}")
                assert time.monotonic() < deadline
                time.sleep(0.005)
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.mark.timeout(1500)
@pytest.mark.usefixtures("can_deploy")
def test_the_five_steps_of_the_page_train_on_a_pair_that_is_repaired_where_it_is_broken(
    cli: Cli, tmp_path: Path
) -> None:
    install, up, run, down = _write_page_files_and_list_commands(tmp_path)
    assert install[:2] == ["pip", "install"]
    file = str(tmp_path / up[-1])
    assert up == ["gpuyard", "deploy", "up", "pair.deployment.yaml"]
    home = own_home()
    before = namespaces()
    planned = json.loads(cli("deploy", "plan", file, "--json").stdout)
    assert planned["changes"] == {"added": 3, "changed": 0, "removed": 0}
    assert not (home / "deployments").exists() or not list((home / "deployments").iterdir())

    result = _up(cli, file)
    assert result["changes"]["added"] == 3
    assert all(result["changed_tasks"].values())

    _on(home, "node1", "umount", "/shared")
    os.kill(first_process(StateDirectory("pair").path / "disks" / "node0") or 0, signal.SIGTERM)
    repaired = _up(cli, file)
    assert repaired["changes"] == {"added": 1, "changed": 0, "removed": 0}
    # both mount the shared path; nothing else is done a second time
    assert repaired["changed_tasks"] == {"node0": 1, "node1": 1}

    checks = _verify(cli, file)
    assert {("shared directory", "node1"), ("open ports", "node0")} <= set(checks)
    assert ("all-reduce between all", "all") in checks
    assert ("training on two nodes", "node0, node1") in checks
    assert "node0, node1" in cli("results", "list", "--kind", "collectives").stdout

    planned = cli(*run[1:4], "--dry-run", *run[4:], cwd=tmp_path).stdout
    assert "torchrun --nnodes=2 --nproc-per-node=2" in " ".join(planned.split())
    assert "node0: 4 ranks, loss" in cli(*run[1:], cwd=tmp_path).stdout
    assert (tmp_path / "model.pt").stat().st_size > 40_000

    cli(*down[1:], "--yes", cwd=tmp_path)
    assert namespaces() <= before
    assert "There is no deployment" in cli("deploy", "status").stdout


def _write_page_files_and_list_commands(directory: Path) -> list[list[str]]:
    """Write the files of the page's first section, and return the commands of its steps, of which there are five."""
    page = ROOT / "docs" / "deploy.md"
    section = page.read_text().split("\n## ")[1]
    assert len(re.findall(r"^\*\*\d\. ", section, re.MULTILINE)) <= 5
    commands = []
    for fence in fences(page):
        if fence.text not in section:
            continue
        if fence.file is not None:
            (directory / fence.file).write_text(fence.text)
        elif fence.language == "sh":
            commands += [shlex.split(line) for line in fence.text.splitlines()]
    return commands


WHOLE = """
name: pair
cluster: {name: pair, nodes: 3, machine: {gpu: t4, gpus: 2}, network: {rate: 1 Gbit/s}}
target: {kind: lab}
head: [base, shared-storage, slurm, training, jupyter, mlflow, monitoring, firewall]
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
    pytest.importorskip("flask")  # of mlflow; mlflow-skinny has no server
    home = own_home()
    path = tmp_path / "whole.deployment.yaml"
    path.write_text(WHOLE)
    file = str(path)
    before = namespaces()
    in_the_middle_of_the_roles = home / "deployments/pair/disks/node0/upper/etc/slurm/slurm.conf"
    with _kill_when(in_the_middle_of_the_roles.exists, "up", file):
        pass
    _up(cli, file)
    for node in ("node0", "node1", "node2"):
        _on(home, node, "chmod", "711", "/root")  # below which this host's Python may be
    checks = _verify(cli, file)
    assert checks["a job on all nodes", "all"] == "3 × 2 GPUs"
    assert checks["a user's job", "all"] == "ada ran it on node0 and node1"
    assert checks["notebooks", "node0"] == "200 with the token, 403 without"
    expected = {("monitoring", "node2"), ("firewall", "node1"), ("job accounts", "node0")}
    assert expected | {("MLflow", "node2")} <= set(checks)
    assert ("training on two nodes", "node0, node1") in checks
    assert "spoken-digits-linear" in cli("results", "list").stdout
    assert _up(cli, file)["changed_tasks"] == {"node0": 0, "node1": 0, "node2": 0}
    assert _on(home, "node1", "id", "-u", "ada") == _on(home, "node0", "id", "-u", "ada")
    assert _on(home, "node1", "passwd", "--status", "ada").split()[1] == "L"  # keys only

    _on(home, "node1", "pkill", "-9", "-x", "slurmd")
    _on(home, "node2", "umount", "/data/of/all")
    _on(home, "node2", "nft", "flush", "ruleset")
    _on(home, "node0", "pkill", "-9", "-f", "jupyterlab")
    _on(home, "node1", "pkill", "-9", "-x", "prometheus-node")
    broken = json.loads(cli("deploy", "verify", file, "--json", status=1).stdout)
    failed = {(c["check"], c["host"]): c["detail"] for c in broken["checks"] if c["ok"] is False}
    assert "node1: slurmd does not run" in failed["a job on all nodes", "all"]
    assert set(failed) == {
        ("a job on all nodes", "all"),
        ("shared directory", "node2"),
        ("firewall", "node2"),
        ("notebooks", "node0"),
        ("monitoring", "node1"),
    }
    _up(cli, file)
    _verify(cli, file)

    _works_as_a_user(cli, file, home)
    _trains_through_slurm(cli, file, tmp_path)
    _no_secret_is_kept(home)
    _down(cli, file)
    assert namespaces() <= before
    assert not list((home / "deployments").iterdir())


def _on(home: Path, machine: str, *argv: str, seconds: float = 60) -> str:
    config = home / "deployments/pair/ssh_config"
    line = ("ssh", "-F", str(config), machine, *argv)
    done = subprocess.run(line, check=False, timeout=seconds, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _works_as_a_user(cli: Cli, file: str, home: Path) -> None:
    """A person's jobs run on two machines in the shared storage, and the files that they write there are the person's."""
    shared = "cd /data/of/all/ada"
    _as_ada(home, "mkdir /data/of/all/ada")
    _as_ada(home, f"{shared} && sbatch --wait --quiet --nodes=2 --wrap 'srun touch $SLURM_JOB_ID'")
    submit = "gpuyard submit --gpus 4 --nodes 2 -- torchrun --no-python hostname"
    _as_ada(home, f"{shared} && gpuyard wait $({submit})")
    assert _on(home, "node1", "ls -A /data/of/all/ada").strip()
    assert _on(home, "node1", "find /data/of/all/ada ! -user ada") == ""

    # while her job holds all nodes, nothing has failed
    _as_ada(home, f"{shared} && sbatch --quiet --nodes=3 --gres=gpu:2 --wrap 'sleep 300'")
    verdict = json.loads(cli("deploy", "verify", file, "--json").stdout)
    untried = {
        check["check"]: check["detail"] for check in verdict["checks"] if check["ok"] is None
    }
    assert "other jobs hold the nodes" in untried["a job on all nodes"]
    _as_ada(home, "scancel --user=ada")


def _as_ada(home: Path, command: str) -> None:
    _on(home, "node0", "runuser", "-l", "ada", "-c", shlex.quote(command), seconds=120)


def _trains_through_slurm(cli: Cli, file: str, tmp_path: Path) -> None:
    """The page's script trains on all machines as a Slurm job; its result comes back, and so does its exit status."""
    project = tmp_path / "project"
    project.mkdir()
    _write_page_files_and_list_commands(project)
    output = json.loads(
        cli("deploy", "run", file, "--json", "--", "torchrun", "train.py", cwd=project).stdout
    )
    assert output["launcher"] == "slurm"
    assert output["exit_status"] == 0
    assert "model.pt" in [each["file"] for each in output["fetched"]]
    cli("deploy", "run", file, "--nodes", "2", "--", "sh", "-c", "exit 9", cwd=project, status=9)


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
    path = tmp_path / "trixie.deployment.yaml"
    text = (ROOT / FILE).read_text()
    path.write_text(text.replace("{kind: lab}", "{kind: lab, release: trixie}"))
    assert "trixie" in path.read_text()
    file = str(path)
    _up(cli, file)
    assert _on(own_home(), "node1", "cat", "/etc/debian_version").startswith("13")
    _verify(cli, file)
    assert _up(cli, file)["changed_tasks"] == {"node0": 0, "node1": 0}
    _down(cli, file)


@pytest.mark.timeout(900)
@pytest.mark.soak
@pytest.mark.usefixtures("can_deploy")
def test_a_killed_up_continues_and_two_cannot_run_at_once(cli: Cli) -> None:
    os.chdir(ROOT)
    machines_but_no_roles = own_home() / "deployments/pair/hosts.json"
    with _kill_when(machines_but_no_roles.exists, "up", FILE):
        assert "another gpuyard process is changing" in cli("deploy", "up", FILE, status=1).stderr
    _up(cli, FILE)
    _verify(cli, FILE)
    _down(cli, FILE)


@pytest.mark.timeout(900)
@pytest.mark.soak
@pytest.mark.usefixtures("can_deploy")
@pytest.mark.parametrize("gone", ["disks/node1", "disks/node0"])
def test_a_down_that_was_killed_is_finished_by_the_next(
    cli: Cli, tmp_path: Path, gone: str
) -> None:
    """Killed when one machine is gone, whichever it is."""
    path = tmp_path / "pair.deployment.yaml"
    path.write_text(WHOLE.split("head:", maxsplit=1)[0] + "head: [base]\nworkers: [base]\n")
    file = str(path)
    before = namespaces()
    _up(cli, file)
    state = own_home() / "deployments/pair"
    assert (state / gone).is_dir()
    with _kill_when(lambda: not (state / gone).is_dir(), "down", file, "--yes"):
        pass
    assert state.is_dir()
    _down(cli, file)
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
    path = tmp_path / "pair.deployment.yaml"
    path.write_text(TEAM)
    file = str(path)
    _up(cli, file)
    assert _up(cli, file)["changed_tasks"] == {"node0": 0}
    _verify(cli, file)
    _on(own_home(), "node0", "chmod", "711", "/root")  # below which this host's Python may be
    assert json.loads(_on(own_home(), "node0", probe_command(), seconds=400)) == EXPECTED
    _down(cli, file)


BENCH = ("--batch", "32", "--link", "1 Gbit/s", "--time-per-point", "2 s")


@pytest.mark.timeout(1500)
@pytest.mark.soak
@pytest.mark.usefixtures("can_deploy")
def test_a_bench_is_shown_beside_its_prediction_stored_and_not_run_twice(
    cli: Cli, tmp_path: Path
) -> None:
    os.chdir(ROOT)
    _up(cli, FILE)
    planned = json.loads(cli("deploy", "bench", FILE, *BENCH, "--dry-run", "--json").stdout)
    page = tmp_path / "bench.html"
    output = json.loads(cli("deploy", "bench", FILE, *BENCH, "--json", "--html", str(page)).stdout)
    runs = output["runs"]
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
    assert output["measured"] == []  # emulated ones are no figures of a GPU
    assert "chart-efficiency" in page.read_text()
    stored = cli("results", "list", "--json").stdout
    assert all(run["id"] in stored for run in runs)
    again = cli("deploy", "bench", FILE, *BENCH, "--dry-run", "--json").stdout
    assert json.loads(again)["expected_seconds"] == 0
    page_text = cli("deploy", "bench", FILE, *BENCH).stdout
    assert "No prediction starts from these runs" in page_text
    _down(cli, FILE)


SMALL = """
name: pair
cluster: {name: pair, nodes: 3, machine: {gpu: t4, gpus: 1}, network: {rate: 1 Gbit/s}}
target: {kind: lab}
head: [base, shared-storage]
workers: [base, shared-storage]
users:
  - {name: ada, keys: [ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0xPYkTyiuYF6mGVxsgPq9Kh1OQZ0FQ3Yw4bLZ1cPpR ada]}
  - {name: bob, keys: [ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0xPYkTyiuYF6mGVxsgPq9Kh1OQZ0FQ3Yw4bLZ1cPpR bob]}
"""
BACKGROUND = "> /dev/null 2>&1 < /dev/null &"


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("can_deploy")
def test_a_lab_is_resized_and_repaired_and_nobody_loses_what_they_did_not_give_up(
    cli: Cli, gpuyard_process: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pexpect = pytest.importorskip("pexpect")
    home, path = own_home(), tmp_path / "pair.deployment.yaml"
    file = str(path)
    path.write_text(SMALL)
    piped = gpuyard_process("deploy", "up", file).stderr.splitlines()
    steps = ("node[0]", "host keys", "Gathering Facts", "Base", "Shared storage")
    numbers = [next(i for i, line in enumerate(piped) if step in line) for step in steps]
    assert numbers == sorted(numbers) and piped.count("Base") == 1
    _on(home, "node1", f"runuser -u bob -- setsid sleep 9876 {BACKGROUND} touch /root/mine")

    # node2 goes, and bob leaves
    path.write_text(SMALL.replace("nodes: 3", "nodes: 2").rsplit("\n", 2)[0] + "\n")
    planned = json.loads(cli("deploy", "plan", file, "--json").stdout)
    assert (planned["removed"], planned["replaced"]) == (["node2"], [])
    smaller = _up(cli, file)
    assert smaller["changes"] == {"added": 0, "changed": 1, "removed": 1}
    assert not (home / "deployments/pair/disks/node2").exists()
    (note,) = smaller["notes"]
    assert "bob" in note and "node1" in note and "sleep 9876" in note
    for node in ("node0", "node1"):
        assert _on(home, node, "passwd", "--status", "bob").split()[1] == "L"
        assert _on(home, node, "chage --list bob | grep '^Account'").split()[-1] == "1970"
        assert _on(home, node, "ls -A ~bob/.ssh ~ada/.ssh").count("authorized_keys") == 1

    # node2 and bob come back, and node1's sshd has died meanwhile
    _kill_sshd(home / "deployments/pair/disks/node1")
    path.write_text(SMALL)
    planned = json.loads(cli("deploy", "plan", file, "--json").stdout)
    assert (planned["repaired"], planned["removed"]) == (["node1"], [])
    assert _up(cli, file)["changes"] == {"added": 2, "changed": 1, "removed": 0}
    assert "10.77.0.3" in _on(home, "node0", "getent", "hosts", "node2")
    assert _on(home, "node1", "pgrep", "-x", "sleep")
    assert "never" in _on(home, "node1", "chage --list bob | grep '^Account'")
    assert _on(home, "node1", "ls ~bob/.ssh/authorized_keys")

    assert "node7" in cli("deploy", "up", file, "--replace", "node7", status=2).stderr
    refused = cli("deploy", "up", file, "--replace", "node1", status=1).stderr
    assert "sleep 9876" in refused and "--force" in refused
    both = ("--replace", "node1", "--restart", "node2", "--force")
    done = json.loads(cli("deploy", "up", file, *both, "--json").stdout)
    assert done["changes"] == {"added": 2, "changed": 0, "removed": 1}
    assert "mine" not in _on(home, "node1", "ls", "/root")

    _on(home, "node0", "echo precious > /shared/results.txt")
    cli("deploy", "up", file, "--replace", "node0")
    assert _on(home, "node1", "cat", "/shared/results.txt") == "precious\n"
    refused = " ".join(cli("deploy", "down", file, status=2).stderr.split())
    assert "/shared (1 file, 9 B)" in refused and "--yes" in refused
    _on(home, "node1", f"cd /shared; setsid sleep 9876 {BACKGROUND}")
    refused = cli("deploy", "down", file, "--yes", status=1).stderr
    assert "sleep 9876" in refused and "--force" in refused
    assert _on(home, "node0", "cat", "/shared/results.txt") == "precious\n"

    monkeypatch.chdir(tmp_path)
    argv = ["-P", "-m", "gpuyard", "deploy", "down", file, "--force"]
    child = pexpect.spawn(sys.executable, argv, encoding="utf-8", timeout=240)
    child.expect("Copy /shared")
    child.sendline("y")
    child.expect("Delete them")
    child.sendline("y")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0, child.before
    assert (tmp_path / "pair-shared/results.txt").read_text() == "precious\n"
    assert not (home / "deployments/pair").exists()


def _kill_sshd(disk: Path) -> None:
    init = psutil.Process(first_process(disk))
    for process in init.children(recursive=True):
        if process.name() == "sshd":
            process.kill()
