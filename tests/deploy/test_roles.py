"""The roles as files: lint results, and the description of a machine for Slurm."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from gpuyard.deploy.ports import PORTS, get_ports
from gpuyard.deploy.stack.environments import describe_environments
from gpuyard.deploy.stack.lock import read_lock
from gpuyard.specs.deployment import RoleName
from tests.deploy.rendering import flatten_tasks

PLAYBOOK = Path(__file__).parents[2] / "src/gpuyard/deploy/ansible"
REQUIREMENTS = Path(__file__).parents[2] / "requirements"
GPUS = PLAYBOOK / "roles/slurm/files/gpus.py"


@pytest.mark.soak
def test_roles_pass_the_strictest_profile_of_ansible_lint(tmp_path: Path) -> None:
    pytest.importorskip("ansiblelint")
    program = Path(sys.executable).parent / "ansible-lint"
    done = subprocess.run(
        (program, "--nocolor", "--offline", "--profile", "production", "site.yaml"),
        cwd=PLAYBOOK,
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
        env={**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "files processed" in done.stderr


def test_a_playbook_that_ansible_can_read() -> None:
    pytest.importorskip("ansible_runner")
    program = Path(sys.executable).parent / "ansible-playbook"
    done = subprocess.run(
        (program, "--syntax-check", "-i", "localhost,", "site.yaml"),
        cwd=PLAYBOOK,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def _pip_tasks() -> dict[str, dict[str, Any]]:
    return {
        f"{path.parents[1].name}/{path.name}": task["ansible.builtin.pip"]
        for path in sorted(PLAYBOOK.glob("roles/*/tasks/*.yaml"))
        for task in flatten_tasks(YAML(typ="safe").load(path))
        if "ansible.builtin.pip" in task
    }


def _read_locked(path: Path) -> dict[str, str]:
    """Return the requirement of each package of a lock, all of which must have hashes."""
    entries = re.split(r"\n(?=\w)", path.read_text().partition("\n")[2].strip())
    assert all(" --hash=sha256:" in entry and "==" in entry for entry in entries)
    return {entry.partition("==")[0]: entry.partition(" ")[0] for entry in entries}


def test_root_installs_only_files_whose_hashes_are_locked() -> None:
    tasks = _pip_tasks()
    assert set(tasks.pop("gpu_stack/framework.yaml")) >= {"requirements"}  # several indexes
    for task in tasks.values():
        assert "name" not in task
        assert {"--no-deps", "--require-hashes", "--only-binary"} <= {*task["extra_args"].split()}
    assert set(tasks) == {"jupyter/install.yaml", "mlflow/main.yaml", "mlflow/server.yaml"}


def test_locks_have_the_tested_versions_and_leave_the_training_environment_alone() -> None:
    described = describe_environments(read_lock(), "pytorch", horovod=False)
    training = {pin.partition("==")[0] for pin in described["training_environments"][0]["gpu"]}
    locks = {path.stem: _read_locked(path) for path in PLAYBOOK.glob("roles/*/files/*.txt")}
    tested = "\n".join(
        (REQUIREMENTS / name).read_text() for name in ("dev.in", "soak.in")
    ).splitlines()
    for file, package in (
        ("jupyterlab", "jupyterlab"),
        ("jupyterhub", "jupyterhub"),
        ("client", "mlflow-skinny"),
        ("server", "mlflow"),
    ):
        assert locks[file][package] in tested
    assert locks.keys() == {"jupyterlab", "jupyterhub", "without-training", "client", "server"}
    for file in ("jupyterlab", "jupyterhub", "client"):
        assert not locks[file].keys() & training
    assert locks["without-training"].keys() <= training
    assert not locks["jupyterlab"].keys() & locks["jupyterhub"].keys()


def _machine(root: Path) -> None:
    """Create two sockets with two cores and two threads each, numbered like Linux: first all first threads."""
    for cpu in range(8):
        core = cpu % 4
        topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text(f"{core // 2}\n")
        (topology / "core_id").write_text(f"{core % 2}\n")
    (root / "dev").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (root / "dev" / name).touch()
    for minor, (bus, near) in enumerate(
        (("0000:3b:00.0", "0-1,4-5\n"), ("0000:af:00.0", "2-3,6-7\n"))
    ):
        information = root / f"proc/driver/nvidia/gpus/{bus}/information"
        information.parent.mkdir(parents=True)
        information.write_text(
            f"Model: \t\t Tesla T4\nBus Location: \t {bus}\nDevice Minor: \t {minor}\n"
        )
        device = root / f"sys/bus/pci/devices/{bus}"
        device.mkdir(parents=True)
        (device / "local_cpulist").write_text(near)


def _describe_machine(root: Path) -> dict[str, object]:
    argv = (sys.executable, str(GPUS), str(root))
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=30)
    document: dict[str, object] = json.loads(done.stdout)
    return document


def test_slurm_gets_the_cores_near_each_gpu(tmp_path: Path) -> None:
    _machine(tmp_path)
    assert _describe_machine(tmp_path) == {
        "cpus": 8,
        "sockets": 2,
        "cores_per_socket": 2,
        "threads_per_core": 2,
        "gpus": [
            {"device": "/dev/nvidia0", "cores": "0-1"},
            {"device": "/dev/nvidia1", "cores": "2-3"},
        ],
    }


def test_cores_that_differ_from_socket_to_socket_are_not_described(tmp_path: Path) -> None:
    _machine(tmp_path)
    (tmp_path / "sys/devices/system/cpu/cpu7/topology/core_id").unlink()  # it is switched off
    document = _describe_machine(tmp_path)
    assert document["sockets"] == 0
    assert document["cpus"] == 7
    assert document["gpus"] == [
        {"device": "/dev/nvidia0", "cores": ""},
        {"device": "/dev/nvidia1", "cores": ""},
    ]


def test_each_machine_shows_its_own_ports_to_the_others() -> None:
    roles: tuple[RoleName, ...] = ("base", "slurm", "monitoring", "jupyter")
    assert get_ports(roles, head=True) == [6817, 6818, 6819, 9100, 9400]
    assert get_ports(roles, head=False) == [6818, 9100, 9400]
    assert "jupyter" not in PORTS
    assert get_ports(("mlflow",), head=True) == [5000]


def test_nfs_has_the_directories_of_its_settings() -> None:
    """Debian's and Ubuntu's packages contain neither, and Ansible cannot copy a file to a missing directory."""
    tasks = YAML(typ="safe").load((PLAYBOOK / "roles/shared_storage/tasks/server.yaml").read_text())
    created = {
        path for task in tasks for path in task.get("loop", []) if "ansible.builtin.file" in task
    }
    written = {
        str(Path(task["ansible.builtin.copy"]["dest"]).parent)
        for task in tasks
        if "ansible.builtin.copy" in task
    }
    assert written
    assert written == created


def test_the_kernels_nfs_module_is_loaded_before_the_role_decides() -> None:
    """`/proc/filesystems` lists only what is loaded, so NFS would seem to be missing on a machine that never used it."""
    tasks = YAML(typ="safe").load((PLAYBOOK / "roles/shared_storage/tasks/client.yaml").read_text())
    commands = [str(task.get("ansible.builtin.command", "")) for task in tasks]
    assert commands[:2] == ["modprobe nfs", "grep -qw nfs /proc/filesystems"]
    assert tasks[0]["failed_when"] is False  # it may be built in


def test_tasks_that_download_or_build_packages_have_longer_timeouts() -> None:
    """Other tasks have the run's timeout, so none waits forever."""
    tasks = [task for file in _task_files() for task in flatten_tasks(YAML(typ="safe").load(file))]
    long = [
        task
        for task in tasks
        if {"ansible.builtin.apt", "ansible.builtin.pip"} & set(task)
        or "horovod" in str(task.get("ansible.builtin.command"))
    ]
    assert len(long) > 20
    assert [task["name"] for task in long if task.get("timeout", 0) < 1800] == []


def _task_files() -> list[Path]:
    return [*PLAYBOOK.rglob("tasks/*.yaml"), *PLAYBOOK.rglob("handlers/*.yaml")]
