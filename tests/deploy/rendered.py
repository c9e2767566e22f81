"""The files that roles write, rendered by Ansible itself from the roles' own tasks into a directory."""

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
_EVERY_ROLE = ["base", "shared-storage", "slurm", "training", "jupyter", "monitoring", "firewall"]
_FIREWALL = "/etc/gpuyard/firewall.nft"
_JUPYTER = (
    {"jupyter_service": "gpuyard-jupyterhub", "jupyter_hub": True, "jupyter_user": "jupyter"},
    {"jupyter_service": "gpuyard-jupyter", "jupyter_hub": False, "jupyter_user": "ada"},
)
# what earlier tasks of the roles find out on a machine
_FOUND = {
    "firewall_sshd": {"stdout": "port 22\naddressfamily any\n"},
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


def rendered(directory: Path) -> Path:
    """A root directory with what the head gets below its /etc."""
    root = directory / "root"
    tasks = list(_writing(root))
    assert tasks
    hosts = {
        name: {"gpuyard_address": address, "gpuyard_roles": _EVERY_ROLE, **_FOUND}
        for name, address in HOSTS.items()
    }
    told = {
        "gpuyard_head": "head",
        "gpuyard_name": "team",
        "gpuyard_shared": "/shared",
        "gpuyard_users": [{"name": "ada"}, {"name": "bob"}],
        "gpuyard_ports": [2049, 6817, 9100],
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        **_defaults(),
    }
    # of the others, only what the head's files say of them
    play = [
        {"hosts": "all", "gather_subset": ["!all", "hardware"]},
        {"hosts": "head", "gather_facts": False, "tasks": tasks},
    ]
    run_play(directory, {"hosts": hosts, "vars": told}, play)
    return root


def run_play(directory: Path, told: dict[str, Any], play: Sequence[object]) -> None:
    """By Ansible, which is told of these hosts; it may use the directory."""
    (directory / "inventory.json").write_text(json.dumps({"all": told}))
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


def tasks_of(listed: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """With those in blocks."""
    for task in listed:
        yield task
        yield from tasks_of(task.get("block", []))


def _writing(root: Path) -> Iterator[dict[str, Any]]:
    """The tasks that write below /etc, with another root and without what comes after."""
    for file in sorted(ROLES.glob("*/tasks/*.yaml")):
        role = file.parents[1]
        for task in tasks_of(YAML(typ="safe").load(file)):
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
    found: dict[str, Any] = {}
    for file in ROLES.glob("*/defaults/main.yaml"):
        found |= YAML(typ="safe").load(file)
    return found
