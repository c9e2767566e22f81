"""Render the files that roles write to a directory, with Ansible and the roles' own tasks."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROLES = Path(__file__).parents[2] / "src/gpuyard/deploy/ansible/roles"
HOSTS = {"head": "10.77.0.1", "gpu1": "10.77.0.2"}
_WRITES = ("ansible.builtin.template", "ansible.builtin.copy")
_EVERY_ROLE = [
    "base",
    "shared-storage",
    "slurm",
    "training",
    "jupyter",
    "mlflow",
    "monitoring",
    "firewall",
]
_FIREWALL = "/etc/gpuyard/firewall.nft"
_JUPYTER = (
    {"jupyter_service": "gpuyard-jupyterhub", "jupyter_hub": True, "jupyter_user": "jupyter"},
    {"jupyter_service": "gpuyard-jupyter", "jupyter_hub": False, "jupyter_user": "ada"},
)
# Facts that earlier tasks of the roles collect on a machine.
_FOUND = {
    "firewall_sshd": {"stdout": "port 22\naddressfamily any\n"},
    "mlflow_python": "/opt/gpuyard/mlflow/bin/python",
    "monitoring_nvidia": {"stat": {"exists": True}},
    "slurm_cgroups": True,
    "slurm_kernel": {"stdout_lines": ["cgroup2fs", "23.11.4"]},
    "slurm_machine": {
        "cpus": 8,
        "sockets": 1,
        "cores_per_socket": 4,
        "threads_per_core": 2,
        "gpus": [{"device": "/dev/nvidia0", "cores": "0-3"}],
    },
}


def render_files(directory: Path) -> Path:
    """Return a root directory with the files that the head gets in /etc."""
    root = directory / "root"
    tasks = list(_writing(root))
    assert tasks
    hosts = {
        name: {"gpuyard_address": address, "gpuyard_roles": _EVERY_ROLE, **_FOUND}
        for name, address in HOSTS.items()
    }
    variables = {
        "gpuyard_head": "head",
        "gpuyard_name": "team",
        "gpuyard_shared": "/shared",
        "gpuyard_users": [{"name": "ada"}, {"name": "bob"}],
        "gpuyard_ports": [2049, 6817, 9100],
        "gpuyard_poweroff_time": 1_800_000_000,
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        **_defaults(),
        "gpu_stack_system": "debian12",
    }
    # Other hosts matter only as far as the head's files mention them.
    play = [
        {"hosts": "all", "gather_subset": ["!all", "hardware"]},
        {"hosts": "head", "gather_facts": False, "tasks": tasks},
    ]
    run_play(directory, {"hosts": hosts, "vars": variables}, play)
    return root


def run_play(directory: Path, variables: dict[str, Any], play: Sequence[object]) -> None:
    """Run a play with Ansible for these hosts; files go to the directory."""
    (directory / "inventory.json").write_text(json.dumps({"all": variables}))
    (directory / "play.json").write_text(json.dumps(play))
    program = Path(sys.executable).parent / "ansible-playbook"
    done = subprocess.run(
        (program, "-i", directory / "inventory.json", directory / "play.json"),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def flatten_tasks(listed: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield all tasks, including those in blocks."""
    for task in listed:
        yield task
        yield from flatten_tasks(task.get("block", []))


def _writing(root: Path) -> Iterator[dict[str, Any]]:
    """Yield the tasks that write to /etc, changed to another root and without follow-up actions."""
    for file in sorted(ROLES.glob("*/tasks/*.yaml")):
        role = file.parents[1]
        for task in flatten_tasks(YAML(typ="safe").load(file)):
            for module in _WRITES:
                written = dict(task.get(module, {}))
                dest = str(written.get("dest", "")).replace("{{ firewall_file }}", _FIREWALL)
                if not dest.startswith("/etc/"):
                    continue
                for what in ("owner", "group", "validate"):
                    written.pop(what, None)
                if "src" in written:
                    written["src"] = str(role / "templates" / written["src"])
                written["dest"] = f"{root}{dest}"
                (root / dest[1:]).parent.mkdir(parents=True, exist_ok=True)
                for kind in _JUPYTER if "jupyter_service" in dest else _JUPYTER[:1]:
                    yield {module: written, "vars": {**kind, **task.get("vars", {})}}


def _defaults() -> dict[str, Any]:
    defaults: dict[str, Any] = {}
    for file in ROLES.glob("*/defaults/main.yaml"):
        defaults |= YAML(typ="safe").load(file)
    return defaults
