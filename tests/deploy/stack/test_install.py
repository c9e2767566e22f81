"""`gpuyard stack install`: what it refuses, what it tells Ansible, and a real Debian brought to the lock."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuyard import lab
from gpuyard.deploy.ansible.package import environments, merged
from gpuyard.deploy.ansible.run import PlayRecap
from gpuyard.deploy.deployment import open_deployment
from gpuyard.deploy.stack import install as room
from gpuyard.deploy.stack.lock import read_lock
from gpuyard.deploy.terraform.run import Changes
from gpuyard.errors import MissingRequirement
from gpuyard.lab.machine_root import make_root
from gpuyard.report.answers.deploy import up_answer
from gpuyard.report.answers.stack import install_answer
from tests.conftest import LAB_ROOTS, MACHINE, ROOT, Cli

LOCK = read_lock()


def test_who_is_not_root_is_told(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "sudo" in cli("stack", "install", status=1).stderr


def test_what_can_not_be_is_found_before_anything_else(cli: Cli) -> None:
    assert "'pytorch'" in cli("stack", "install", "--framework", "pytorh", status=2).stderr
    assert "name of a user" in cli("stack", "install", "--docker-user=-s", status=2).stderr


def told(monkeypatch: pytest.MonkeyPatch, wanted: room.Wanted) -> dict[str, object]:
    """Variables that Ansible would get."""
    heard: list[dict[str, object]] = []

    def play(*arguments: object, **_: object) -> PlayRecap:
        heard.append(arguments[1]["all"]["vars"])  # type: ignore[index]
        return PlayRecap({})

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(room, "play", play)
    room.install(LOCK, wanted, lambda _: None)
    return heard[0]


def test_ssh_and_docker_are_left_as_they_are_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = told(monkeypatch, room.Wanted())
    assert plain["base_harden_ssh"] is False
    assert plain["gpuyard_clock_is_kept"] is True
    assert plain["containers_users"] == []
    assert plain["gpu_stack_toolkit"] == "cuda-toolkit-13-0"
    asked = told(monkeypatch, room.Wanted(harden_ssh=True, users=("ada",), toolkit=False))
    assert asked["base_harden_ssh"] is True
    assert asked["containers_users"] == ["ada"]
    assert asked["gpu_stack_toolkit"] == ""


def test_what_was_installed_can_be_taken_away_and_nothing_else(home: Path) -> None:
    assert room.undo(LOCK) == []
    (home / "stack").mkdir(parents=True)
    room._remember("Install Docker")
    room._remember("Make its directory")
    assert room.undo(LOCK) == ["apt-get remove --autoremove docker.io"]


def test_what_would_change_and_what_is_left_out_is_said() -> None:
    outcome = PlayRecap(
        {"this machine": 1},
        ("this machine: no NVIDIA GPU, so no driver and no CUDA",),
        ("Install Docker",),
    )
    document = install_answer(outcome, ["apt-get remove docker.io"], dry_run=True).document
    assert document["changed_tasks"] == ["Install Docker"]
    assert document["notes"] == ["no NVIDIA GPU, so no driver and no CUDA"]


def test_up_says_which_machine_must_be_restarted(tmp_path: Path) -> None:
    path = tmp_path / "one.deployment.yaml"
    path.write_text(
        "name: one\ncluster: {name: one, nodes: 1, machine: {gpu: t4, gpus: 1}}\n"
        "target: {kind: ssh, machines: [{name: one, address: 192.0.2.1}]}\nhead: [base, gpu-stack]\n"
    )
    note = "one: restart this machine, for the driver is loaded at the next start"
    said = up_answer(open_deployment(path), Changes(), PlayRecap({"one": 1}, (note,)), path)
    assert said.document["notes"] == [note]
    assert any(getattr(part, "text", "") == f"{note}." for part in said.parts)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("framework: tensorflow\nhorovod: true\n", "horovod is built against pytorch"),
        ("framework: jax\n", "pytorch"),
        ("docker_users: ['root; reboot']\n", "name of a user"),
    ],
)
def test_mistakes_in_a_deployment_are_said(cli: Cli, tmp_path: Path, words: str, said: str) -> None:
    path = tmp_path / "one.deployment.yaml"
    path.write_text(
        "name: one\ncluster: {name: one, nodes: 1, machine: {gpu: t4, gpus: 1}}\n"
        f"target: {{kind: ssh, machines: [{{name: one, address: 192.0.2.1}}]}}\n{words}"
    )
    assert said in cli("deploy", "plan", str(path), status=2).stderr


def test_training_has_one_pin_for_each_package() -> None:
    assert merged(["a==1", "b==1"], ["b==2"]) == ["a==1", "b==2"]
    own, other = environments(LOCK, "tensorflow", horovod=False)["training_environments"]
    assert own["name"] == "venv"
    assert other["name"] == "tensorflow"
    for pins in (own["gpu"], own["cpu"]):
        names = [pin.split("==")[0] for pin in pins]
        assert len(names) == len(set(names))
        assert "pydantic" in names  # gpuyard's own
    assert "torch==2.13.0+cpu" in own["cpu"]
    assert "torch==2.13.0" in own["gpu"]
    with_horovod = environments(LOCK, "pytorch", horovod=True)["training_environments"][0]
    assert "setuptools==80.9.0" in with_horovod["cpu"]  # Horovod's build needs an older one


_IN_A_DEBIAN = """
set -e
root=$1; base=$2; shift 2
mkdir -p $root/upper $root/work $root/root
mount -t overlay overlay -o lowerdir=$base,upperdir=$root/upper,workdir=$root/work $root/root
cd $root/root
mount -t proc proc proc; mount -t sysfs sysfs sys; mount --rbind /dev dev
for path in $BOUND; do mkdir -p ./$path; mount --bind $path ./$path; done
cp -L /etc/resolv.conf etc/; cp -L /etc/ssl/certs/ca-certificates.crt etc/ssl/certs/
rm -f etc/apt/sources.list; cp -r /etc/apt/sources.list.d /etc/apt/apt.conf.d etc/apt/
if [ -e /etc/pip.conf ]; then cp /etc/pip.conf etc/; fi
exec chroot . "$@"
"""


def in_a_debian(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """gpuyard in a root of its own, with this host's network: what it mounts goes with it."""
    found = os.environ.get("PIP_FIND_LINKS", "")
    bound = [sys.prefix, sys.base_prefix, str(ROOT), *([found] if Path(found).is_dir() else [])]
    script = ["unshare", "--mount", "--propagation=private", "sh", "-c", _IN_A_DEBIAN, "sh"]
    return subprocess.run(
        [*script, str(directory), str(make_root()), f"{sys.prefix}/bin/gpuyard", *arguments],
        env={
            **os.environ,
            "BOUND": " ".join(dict.fromkeys(bound)),
            "GPUYARD_HOME": "/root/gpuyard",
        },
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.soak
@MACHINE
def test_a_debian_is_brought_to_the_lock_and_stays_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        lab.check_can_make_labs()
    except MissingRequirement as missing:
        pytest.skip(str(missing))
    pytest.importorskip("ansible_runner")
    monkeypatch.setenv("GPUYARD_ROOTS", str(LAB_ROOTS))
    before = in_a_debian(tmp_path, "stack", "status", "--json")
    assert before.returncode == 1, before.stderr
    first = in_a_debian(tmp_path, "stack", "install", "--json")
    assert first.returncode == 0, first.stderr
    assert "Install Docker" in json.loads(first.stdout)["changed_tasks"]
    assert "apt-get remove --autoremove docker.io" in json.loads(first.stdout)["undo"]
    second = in_a_debian(tmp_path, "stack", "install", "--json")
    assert second.returncode == 0, second.stderr
    assert json.loads(second.stdout)["changed_tasks"] == []
    after = in_a_debian(tmp_path, "stack", "status", "--json")
    assert after.returncode == 0, after.stdout
