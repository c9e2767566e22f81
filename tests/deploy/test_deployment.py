"""Deployments as values: what a file may say, what ssh is told, and what Terraform and Ansible said."""

import importlib.util
import json
import multiprocessing
import shutil
import subprocess
import tarfile
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from gpuyard import files
from gpuyard.deploy.ansible.package import package_to_install
from gpuyard.deploy.ansible.run import failure
from gpuyard.deploy.deployment import open_deployment, plan
from gpuyard.deploy.state import Host, StateDirectory, deployments, key_file
from gpuyard.deploy.terraform.run import Changes, Terraform
from gpuyard.deploy.verify.machines import listening
from gpuyard.errors import GpuyardError, MissingRequirement
from tests.command_line import ROOT
from tests.conftest import Cli

SSH = """
name: ours
cluster: {name: ours, nodes: 2, machine: {gpu: t4, gpus: 2}, network: {rate: 1 Gbit/s}}
target:
  kind: ssh
  machines:
    - {name: one, address: 192.0.2.1}
    - {name: two, address: 192.0.2.2, user: ubuntu, port: 2222}
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "x.deployment.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("name: ours", "name: 'Ours!'"), "small letters, digits and hyphens"),
        (("kind: ssh", "kind: shh"), "shh"),
        (("nodes: 2", "nodes: 3"), "the cluster has 3 nodes, and the target 2 machines"),
        (("192.0.2.1", "'$(reboot)'"), "expected a host name or an IP address"),
        (("name: one", "name: -oProxyCommand=x"), "small letters"),
        (("target:", "shared: '/a b'\ntarget:"), "expected an absolute path"),
        (("target:", "head: [bass]\ntarget:"), "base"),
        (("target:", "workers: [jupyter]\ntarget:"), "jupyter is a role of the head alone"),
        (("target:", "users: [{name: root, keys: [ssh-rsa AAAA]}]\ntarget:"), "root is on every"),
        (("target:", "users: [{name: ada, keys: ['a\\nb']}]\ntarget:"), "the line of a public key"),
        (("target:", "users: [{name: 'a b', keys: [ssh-rsa AAAA]}]\ntarget:"), "name of a user"),
    ],
)
def test_mistakes_are_said_with_their_place(
    cli: Cli, tmp_path: Path, change: tuple[str, str], said: str
) -> None:
    path = written(tmp_path, SSH.replace(*change))
    done = cli("deploy", "plan", str(path), status=2)
    assert said in done.stderr
    assert str(path) in done.stderr


def test_machines_that_are_there_are_planned_without_terraform(cli: Cli, tmp_path: Path) -> None:
    said = cli("deploy", "plan", str(written(tmp_path, SSH))).stdout
    assert "192.0.2.2" in said
    assert "0 to add" in said


def test_a_machine_that_does_not_answer_is_named(cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("ansible_runner")
    text = SSH.replace("192.0.2.1", "127.0.0.1, port: 1").replace("192.0.2.2", "127.0.0.1")
    said = cli("deploy", "up", str(written(tmp_path, text)), status=1).stderr
    assert any(
        f"{n} can't be reached at the step 'Gathering Facts'" in said for n in ("one", "two")
    )


def test_down_of_machines_that_one_has_leaves_them(cli: Cli, tmp_path: Path, home: Path) -> None:
    path = written(tmp_path, SSH)
    opened = open_deployment(path)
    with opened.state.changing():
        opened.state.write_hosts(opened.target.hosts(opened.deployment, {}))
    assert "one (192.0.2.1)" in cli("deploy", "down", str(path)).stdout
    assert not (home / "deployments" / "ours").exists()


def test_verify_and_ssh_before_up_say_what_to_do(cli: Cli, tmp_path: Path) -> None:
    path = str(written(tmp_path, SSH))
    assert "not up" in cli("deploy", "verify", path, status=1).stderr
    assert "gpuyard deploy up" in cli("deploy", "ssh", path, status=1).stderr


def test_ssh_believes_only_the_key_of_a_machine_that_was_made(home: Path) -> None:
    state = StateDirectory("x")
    with state.changing():
        state.write_hosts(
            (Host("a", "10.77.0.1", host_key="ssh-ed25519 AAAA"), Host("b", "192.0.2.1"))
        )
    told = subprocess.run(
        ("ssh", "-F", str(state.ssh_config), "-G", "a"), capture_output=True, text=True, check=True
    ).stdout
    assert "stricthostkeychecking true" in told
    assert str(home) in told
    assert (state.path / "known_hosts").read_text() == "a ssh-ed25519 AAAA\n"
    assert oct(key_file().stat().st_mode)[-3:] == "600"
    assert "PRIVATE" not in "".join(p.read_text() for p in state.path.iterdir() if p.is_file())


def test_one_changes_a_deployment_at_a_time() -> None:
    with (
        StateDirectory("x").changing(),
        pytest.raises(GpuyardError, match="another gpuyard"),
        StateDirectory("x").changing(),
    ):
        pass


def test_a_file_in_the_place_of_a_deployment_is_told(home: Path) -> None:
    (home / "deployments").mkdir(parents=True)
    (home / "deployments" / "x").touch()
    with (
        pytest.raises(GpuyardError, match="deployments/x is to be a directory"),
        StateDirectory("x").changing(),
    ):
        pass


def test_who_removes_a_deployment_takes_nothing_from_who_begins_it_anew(home: Path) -> None:
    """`down` removes the directory with the lock in it, and so does `plan` of what is not there yet."""
    context = multiprocessing.get_context("fork")
    told = context.SimpleQueue()
    ready = context.Barrier(3)
    processes = [context.Process(target=_make_and_remove, args=(home, ready, told)) for _ in "abc"]
    for process in processes:
        process.start()
    answers = [told.get() for _ in processes]
    for process in processes:
        process.join()
    assert [wrong for _, wrong in answers] == [[], [], []]
    assert all(rounds for rounds, _ in answers)
    assert deployments() == []


def _make_and_remove(
    home: Path, ready: Barrier, told: "multiprocessing.SimpleQueue[tuple[int, list[str]]]"
) -> None:
    state, inside, rounds, wrong = StateDirectory("x"), home.parent / "inside", 0, list[str]()
    ready.wait()
    while rounds < 100 and not wrong:
        try:
            with state.changing():
                inside.touch(exist_ok=False)
                state.write_hosts(())
                state.terraform.mkdir()
                files.write_text(state.terraform / "state", "machines")
                assert files.read_text(state.terraform / "state") == "machines"
                inside.unlink()
                state.remove()
                rounds += 1
        except GpuyardError as error:
            if "another gpuyard" not in str(error):
                wrong.append(repr(error))
        except (OSError, AssertionError) as error:
            wrong.append(repr(error))
    told.put((rounds, wrong))


def test_a_plan_that_fails_leaves_nothing_either(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here for want of a Terraform; on a full disk as well."""
    opened = open_deployment(ROOT / "examples" / "aws.deployment.yaml")
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    (home / "ssh").mkdir(parents=True)
    (home / "ssh" / "id_ed25519").touch()
    (home / "ssh" / "id_ed25519.pub").write_text("ssh-ed25519 AAAA gpuyard\n")
    with pytest.raises(MissingRequirement, match="OpenTofu or Terraform"):
        plan(opened)
    assert deployments() == []


def test_gpuyard_and_its_versions_are_packed_the_same_every_time(tmp_path: Path) -> None:
    told = [package_to_install(tmp_path), package_to_install(tmp_path)]
    assert told[0] == told[1]
    before = (tmp_path / "gpuyard.tar.gz").read_bytes()
    package_to_install(tmp_path)
    assert (tmp_path / "gpuyard.tar.gz").read_bytes() == before
    with tarfile.open(tmp_path / "gpuyard.tar.gz") as packed:
        names = packed.getnames()
    assert {"gpuyard/__init__.py", "gpuyard/deploy/ansible/site.yaml"} <= set(names)


def test_what_listens_for_others() -> None:
    said = (
        "LISTEN 0 128 0.0.0.0:22 0.0.0.0:*\nLISTEN 0 128 [::]:22 [::]:*\n"
        "LISTEN 0 5 127.0.0.1:8888 0.0.0.0:*\nLISTEN 0 5 [::1]:631 [::]:*\nLISTEN 0 5 *:9100 *:*\n"
    )
    assert list(listening(said)) == [22, 22, 9100]


def test_terraform_says_which_resource_failed(tmp_path: Path) -> None:
    terraform = Terraform(tmp_path)
    said = (
        '{"@level":"info","@message":"Plan"}\nnot json\n'
        '{"@level":"error","@message":"Error: x","diagnostic":{"summary":"no room","detail":"disk full",'
        '"address":"gpuyard_lab.network"}}\n'
    )
    sentence = str(terraform._failed("apply", said, 1))
    assert sentence == "Terraform's apply failed: gpuyard_lab.network: no room disk full"
    assert str(Changes(1, 0, 2)) == "1 to add, 0 to change, 2 to remove"


def test_a_failed_task_is_a_sentence_of_bounded_length() -> None:
    data = {"host": "n1", "task": "Mount it", "res": {"msg": "bad", "stderr": "x " * 1000}}
    said = failure(data)
    assert said.startswith("n1: 'Mount it' failed: bad; x x")
    assert len(said) < 400


def test_own_machines_cost_their_electricity_where_its_price_is_known(
    cli: Cli, tmp_path: Path
) -> None:
    path = str(written(tmp_path, SSH))
    unknown = cli("deploy", "cost", path).stdout
    assert "give --tariff or --country" in unknown
    said = json.loads(
        cli("deploy", "cost", path, "--tariff", "$0.20/kWh", "--pue", "1.5", "--json").stdout
    )
    assert 2 * 2 * 70 * 0.5 < said["watts"] < 2 * 1000  # two machines with two T4 of 70 W each
    assert said["usd_per_hour"] == pytest.approx(said["watts"] / 1000 * 1.5 * 0.20)
    assert cli("deploy", "cost", path, "--tariff", "1", "--country", "DE", status=2).stderr
    assert "Germany" in cli("deploy", "cost", path, "--country", "DE").stdout
