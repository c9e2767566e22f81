"""The playbook, run by ansible-runner on a deployment's hosts; what failed where, as one sentence."""

import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuyard.deploy.state import Host, StateDirectory
from gpuyard.errors import GpuyardError, MissingRequirement
from gpuyard.specs.deployment import Deployment, RoleName

Tell = Callable[[str], None]
_PLAYBOOK = Path(__file__).parent
_WORDS = 300  # of what a failed task has said
_REMOTE_TEMP = "~/.ansible/tmp"


@dataclass(frozen=True)
class Outcome:
    """Tasks that changed something, by host."""

    changed: Mapping[str, int]

    @property
    def changes(self) -> int:
        return sum(self.changed.values())


def apply_roles(
    deployment: Deployment,
    hosts: Sequence[Host],
    state: StateDirectory,
    variables: Mapping[str, Any],
    tell: Tell,
) -> Outcome:
    """Bring every host to what its roles say; a second time changes nothing. Raises with the first failure."""
    if importlib.util.find_spec("ansible_runner") is None:
        raise MissingRequirement(
            "machines are configured by Ansible, which is not installed: pip install 'gpuyard[deploy]'"
        )
    import ansible_runner

    failures: list[str] = []
    changed = dict.fromkeys((host.name for host in hosts), 0)

    def hear(event: dict[str, Any]) -> bool:
        data = event.get("event_data", {})
        if event["event"] == "playbook_on_task_start":
            tell(str(data.get("task", "")))
        elif event["event"] in ("runner_on_failed", "runner_on_unreachable"):
            if not data.get("ignore_errors"):
                failures.append(_failure(data))
        elif event["event"] == "runner_on_ok" and (data.get("res") or {}).get("changed"):
            changed[data["host"]] += 1
        return False  # events are not kept: what a task has said may not be for everybody

    state.ansible.mkdir(parents=True, exist_ok=True, mode=0o700)
    done = ansible_runner.run(
        private_data_dir=str(state.ansible),
        project_dir=str(_PLAYBOOK),
        playbook="site.yaml",
        inventory=_inventory(deployment, hosts, variables),
        envvars=_environment(state),
        event_handler=hear,
        quiet=True,
        rotate_artifacts=5,
        suppress_env_files=True,
    )
    if failures:
        raise GpuyardError(failures[0])
    if done.status != "successful":
        raise GpuyardError(f"Ansible ended as {done.status}; see {state.ansible / 'artifacts'}")
    return Outcome(changed)


def roles_of(deployment: Deployment, index: int) -> Sequence[RoleName]:
    """The first host is the head."""
    return deployment.head if index == 0 else deployment.workers


def _inventory(
    deployment: Deployment, hosts: Sequence[Host], variables: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "all": {
            "hosts": {
                host.name: {
                    "gpuyard_address": host.inside,
                    "gpuyard_roles": list(roles_of(deployment, index)),
                }
                for index, host in enumerate(hosts)
            },
            "vars": {
                "gpuyard_head": hosts[0].name,
                "gpuyard_name": deployment.name,
                "gpuyard_shared": deployment.shared,
                "ansible_python_interpreter": "/usr/bin/python3",
                **variables,
            },
        }
    }


def _environment(state: StateDirectory) -> dict[str, str]:
    """Ansible's settings; ssh takes what it must know of hosts from the deployment's own file."""
    programs = Path(sys.executable).parent  # ansible-playbook is beside our Python
    return {
        "ANSIBLE_ROLES_PATH": str(_PLAYBOOK / "roles"),
        "ANSIBLE_SSH_ARGS": f"-F {state.ssh_config} -o BatchMode=yes -o ConnectTimeout=20",
        "ANSIBLE_PIPELINING": "True",
        "ANSIBLE_RETRY_FILES_ENABLED": "False",
        "ANSIBLE_LOCAL_TEMP": str(state.ansible / "tmp"),
        "ANSIBLE_REMOTE_TEMP": _REMOTE_TEMP,
        "PATH": f"{programs}:{os.environ.get('PATH', os.defpath)}",
    }


def _failure(data: Mapping[str, Any]) -> str:
    result = data.get("res") or {}
    parts = [result.get(key) for key in ("msg", "stderr", "stdout")]
    said = "; ".join(str(part) for part in parts if part) or "no words"
    words = " ".join(said.split())
    short = words if len(words) <= _WORDS else words[:_WORDS] + "…"
    return f"{data.get('host', 'a host')}: {data.get('task', 'a task')!r} failed: {short}"
