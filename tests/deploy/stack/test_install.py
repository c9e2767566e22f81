"""`gpuyard stack install`: rejected options, Ansible's variables, and an installation on a real Debian."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpuyard import lab
from gpuyard.deploy.ansible.run import PlayRecap
from gpuyard.deploy.deployment import load_deployment
from gpuyard.deploy.stack import install
from gpuyard.deploy.stack.environments import describe_environments, merge_pins
from gpuyard.deploy.stack.lock import read_lock, read_shipped_text
from gpuyard.deploy.terraform.run import Changes
from gpuyard.errors import MissingRequirement
from gpuyard.lab.machine_root import make_root
from gpuyard.report.answers.deploy import up_answer
from gpuyard.report.answers.stack import install_answer
from tests.conftest import LAB_ROOTS, MACHINE, ROOT, Cli

LOCK = read_lock()


def test_other_users_than_root_are_rejected(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "sudo" in cli("stack", "install", status=1).stderr


def test_impossible_options_are_rejected_first(cli: Cli) -> None:
    assert "'pytorch'" in cli("stack", "install", "--framework", "pytorh", status=2).stderr
    assert "'-s'" in cli("stack", "install", "--docker-user=-s", status=2).stderr


def capture_variables(
    monkeypatch: pytest.MonkeyPatch, options: install.InstallOptions
) -> dict[str, object]:
    """Return the variables that Ansible would receive."""
    captured: list[dict[str, object]] = []

    def run_playbook(*arguments: object, **_: object) -> PlayRecap:
        captured.append(arguments[1]["all"]["vars"])  # type: ignore[index]
        return PlayRecap({})

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(install, "run_playbook", run_playbook)
    install.install(LOCK, options, lambda _: None)
    return captured[0]


def test_ssh_and_docker_are_unchanged_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = capture_variables(monkeypatch, install.InstallOptions())
    assert plain["base_harden_ssh"] is False
    assert plain["gpuyard_clock_is_kept"] is True
    assert plain["containers_users"] == []
    assert plain["gpu_stack_toolkit"] == "cuda-toolkit-13-0"
    chosen = capture_variables(
        monkeypatch, install.InstallOptions(harden_ssh=True, users=("ada",), toolkit=False)
    )
    assert chosen["base_harden_ssh"] is True
    assert chosen["containers_users"] == ["ada"]
    assert chosen["gpu_stack_toolkit"] == ""


def test_undo_removes_only_installed_packages(home: Path) -> None:
    assert install.list_undo_commands(LOCK) == []
    (home / "stack").mkdir(parents=True)
    install._record_task("Install Docker")
    install._record_task("Make its directory")
    assert install.list_undo_commands(LOCK) == ["apt-get remove --autoremove docker.io"]


def test_planned_changes_and_omissions_are_shown() -> None:
    recap = PlayRecap(
        {"this machine": 1},
        ("this machine: no NVIDIA GPU, so no driver and no CUDA",),
        ("Install Docker",),
    )
    undo = ["apt-get remove docker.io"]
    document = install_answer(recap, undo, dry_run=True).document
    assert document["changed_tasks"] == ["Install Docker"]
    assert document["notes"] == ["no NVIDIA GPU, so no driver and no CUDA"]


def test_up_names_the_machines_that_must_be_restarted(tmp_path: Path) -> None:
    path = tmp_path / "one.deployment.yaml"
    path.write_text(
        "name: one\ncluster: {name: one, nodes: 1, machine: {gpu: t4, gpus: 1}}\n"
        "target: {kind: ssh, machines: [{name: one, address: 192.0.2.1}]}\nhead: [base, gpu-stack]\n"
    )
    note = "one: restart this machine, because the driver is loaded only at the next restart"
    answer = up_answer(load_deployment(path), Changes(), PlayRecap({"one": 1}, (note,)), path)
    assert answer.document["notes"] == [note]
    assert any(getattr(part, "text", "") == f"{note}." for part in answer.parts)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("framework: tensorflow\nhorovod: true\n", "horovod"),
        ("framework: jax\n", "pytorch"),
        ("docker_users: ['root; reboot']\n", "docker_users"),
    ],
)
def test_mistakes_in_a_deployment_are_reported(
    cli: Cli, tmp_path: Path, words: str, expected: str
) -> None:
    path = tmp_path / "one.deployment.yaml"
    path.write_text(
        "name: one\ncluster: {name: one, nodes: 1, machine: {gpu: t4, gpus: 1}}\n"
        f"target: {{kind: ssh, machines: [{{name: one, address: 192.0.2.1}}]}}\n{words}"
    )
    assert expected in cli("deploy", "plan", str(path), status=2).stderr


def test_training_has_one_pin_for_each_package() -> None:
    assert merge_pins(["a==1", "b==1"], ["b==2"]) == ["a==1", "b==2"]
    own, other = describe_environments(LOCK, "tensorflow", horovod=False)["training_environments"]
    assert own["name"] == "venv"
    assert other["name"] == "tensorflow"
    for pins in (own["gpu"], own["cpu"]):
        names = [pin.split("==")[0] for pin in pins]
        assert len(names) == len(set(names))
        assert "pydantic" in names  # gpuyard's own
    assert "torch==2.13.0+cpu" in own["cpu"]
    assert "torch==2.13.0" in own["gpu"]
    with_horovod = describe_environments(LOCK, "pytorch", horovod=True)["training_environments"][0]
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
for path in $MISSING; do rm -rf ./$path; done
exec chroot . "$@"
"""


def in_a_debian(
    directory: Path, *arguments: str, missing: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run gpuyard in a separate root with this host's network; its mounts disappear with it."""
    return run_in_a_debian(directory, f"{sys.prefix}/bin/gpuyard", *arguments, missing=missing)


def run_in_a_debian(
    directory: Path, *argv: str, missing: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    try:
        lab.check_can_make_labs()
    except MissingRequirement as requirement:
        pytest.skip(str(requirement))
    pytest.importorskip("ansible_runner")
    kind = subprocess.run(
        ("stat", "--file-system", "--format=%T", directory),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    if kind.strip() == "overlayfs":
        pytest.skip("the kernel mounts no overlay on another one")
    wheels = os.environ.get("PIP_FIND_LINKS", "")
    bound = [sys.prefix, sys.base_prefix, str(ROOT), *([wheels] if Path(wheels).is_dir() else [])]
    script = ["unshare", "--mount", "--propagation=private", "sh", "-c", _IN_A_DEBIAN, "sh"]
    return subprocess.run(
        [*script, str(directory), str(make_root()), *argv],
        env={
            **os.environ,
            "BOUND": " ".join(dict.fromkeys(bound)),
            "MISSING": " ".join(missing),
            "GPUYARD_HOME": "/root/gpuyard",
        },
        capture_output=True,
        text=True,
        check=False,
    )


@MACHINE
@pytest.mark.parametrize(
    "missing",
    [
        ("usr/lib/python3/dist-packages/apt", "usr/lib/python3.11/venv"),
        ("usr/bin/python3", "usr/lib/python3"),
    ],
    ids=["no apt library", "no python3"],
)
def test_a_dry_run_on_a_minimal_debian_lists_the_changes_and_makes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: tuple[str, ...]
) -> None:
    monkeypatch.setenv("GPUYARD_ROOTS", str(LAB_ROOTS))
    done = in_a_debian(tmp_path, "stack", "install", "--dry-run", "--json", missing=missing)
    assert done.returncode == 0, done.stderr
    tasks = json.loads(done.stdout)["changed_tasks"]
    assert {"Install Docker", "Install Python and venv", "Install the pinned packages"} <= set(
        tasks
    )
    for path in ("opt/gpuyard", "usr/bin/docker", "usr/bin/dockerd"):
        assert not (tmp_path / "upper" / path).exists()


def _lock_of_available_packages(path: Path) -> Path:
    """Write a lock for this machine's package index, which may lack the CPU build of torchvision."""
    pin = "torchvision==0.28.0+cpu"
    assert pin in LOCK.frameworks["pytorch"].cpu_requirements
    text = read_shipped_text()
    download = (
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--dest",
        str(path.parent),
        pin,
    )
    if subprocess.run(download, capture_output=True, check=False).returncode != 0:
        text = text.replace(f', "{pin}"', "")
    path.write_text(text)
    return path


@pytest.mark.soak
@MACHINE
def test_a_debian_reaches_the_lock_and_a_second_run_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUYARD_ROOTS", str(LAB_ROOTS))
    before = in_a_debian(tmp_path, "stack", "status", "--json")
    assert before.returncode == 1, before.stderr
    (tmp_path / "upper/srv").mkdir(parents=True)
    _lock_of_available_packages(tmp_path / "upper/srv/lock.toml")
    options = ("--json", "--lock", "/srv/lock.toml")
    first = in_a_debian(tmp_path, "stack", "install", *options)
    assert first.returncode == 0, first.stderr
    assert "Install Docker" in json.loads(first.stdout)["changed_tasks"]
    assert "apt-get remove --autoremove docker.io" in json.loads(first.stdout)["undo"]
    second = in_a_debian(tmp_path, "stack", "install", *options)
    assert second.returncode == 0, second.stderr
    assert json.loads(second.stdout)["changed_tasks"] == []
    (environment,) = json.loads(second.stdout)["environments"]
    for command in (
        f"{environment['python']} -c 'import torch'",
        f"{environment['activate']}; python3 -c 'import torch'",
    ):  # as any user
        as_nobody = ("setpriv", "--reuid=65534", "--clear-groups", "sh", "-c", command)
        used = run_in_a_debian(tmp_path, *as_nobody)
        assert used.returncode == 0, used.stderr
    after = in_a_debian(tmp_path, "stack", "status", *options)
    assert after.returncode == 0, after.stdout
