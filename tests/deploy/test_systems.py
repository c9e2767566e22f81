"""Differences between the supported systems, as the roles' own tasks choose them from Ansible's facts."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from gpuyard.deploy.stack.lock import read_lock
from tests.deploy.rendering import ROLES, flatten_tasks, run_play

# as Ansible's own fixtures have them: ubuntu_18.04.json and debian_10.json of its tests of `distribution`
SYSTEMS = {
    "bookworm": ("Debian", "12.12", "12", 11),
    "trixie": ("Debian", "13.1", "13", 13),
    "jammy": ("Ubuntu", "22.04", "22", 10),
    "noble": ("Ubuntu", "24.04", "24", 12),
}
CHOSEN = {  # NVIDIA's repository, Docker's packages, the Python of environments
    "bookworm": ["debian12", ["docker.io"], "python3"],
    "trixie": ["debian13", ["docker.io", "docker-cli"], "python3"],
    "jammy": ["ubuntu2204", ["docker.io"], "python3.11"],
    "noble": ["ubuntu2404", ["docker.io"], "python3"],
}
FACTS = """#!/usr/bin/python3
# WANT_JSON
import json, sys
told = json.load(open(sys.argv[1]))["facts"]
print(json.dumps({"changed": False, "ansible_facts": told}))
"""


def _task(file: str, name: str) -> dict[str, Any]:
    (match,) = (
        task for task in flatten_tasks(YAML(typ="safe").load(ROLES / file)) if task["name"] == name
    )
    return match


def _facts(release: str) -> dict[str, Any]:
    distribution, version, major, minor = SYSTEMS[release]
    return {
        "distribution": distribution,
        "distribution_version": version,
        "distribution_major_version": major,
        "distribution_release": release,
        "python": {"version": {"major": 3, "minor": minor}},
    }


def test_each_system_gets_its_own_repository_packages_and_python(tmp_path: Path) -> None:
    pytest.importorskip("ansible_runner")
    (tmp_path / "library").mkdir()
    module = tmp_path / "library" / "told_facts.py"
    module.write_text(FACTS)
    module.chmod(0o755)
    docker = _task("containers/tasks/main.yaml", "Install Docker")
    (expression,) = (word for word in [docker["ansible.builtin.apt"]["name"]] if "{{" in word)
    chosen = (
        "{{ [gpu_stack_system, "
        + expression.strip("{} ")
        + ", gpu_stack_python | trim] | to_json }}"
    )
    tasks = [
        {"told_facts": {"facts": "{{ facts_to_tell }}"}},
        _task("gpu_stack/tasks/driver.yaml", "Choose NVIDIA's name for the system"),
        _task("gpu_stack/tasks/framework.yaml", "Choose the Python version"),
        {
            "ansible.builtin.copy": {
                "dest": f"{tmp_path}/{{{{ inventory_hostname }}}}.json",
                "content": chosen,
            },
            "vars": docker["vars"],
        },
    ]
    defaults = [str(ROLES / role / "defaults/main.yaml") for role in ("containers", "gpu_stack")]
    play = [{"hosts": "all", "gather_facts": False, "vars_files": defaults, "tasks": tasks}]
    common = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    hosts = {release: {"facts_to_tell": _facts(release), **common} for release in SYSTEMS}
    run_play(tmp_path, {"hosts": hosts}, play)
    assert {r: json.loads((tmp_path / f"{r}.json").read_text()) for r in SYSTEMS} == CHOSEN


@pytest.mark.parametrize("release", SYSTEMS)
def test_frameworks_have_packages_for_the_python_of_each_system(release: str) -> None:
    minor = max(11, SYSTEMS[release][3])
    unsupported = [
        name
        for name, framework in read_lock().frameworks.items()
        if f"3.{minor}" not in framework.pythons
    ]
    # the role says so there, and installs nothing
    assert unsupported == ([] if minor == 11 else ["mxnet"])
