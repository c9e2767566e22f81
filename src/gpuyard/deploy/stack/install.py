"""Apply the roles base, gpu-stack, and containers to this machine, with Ansible but without ssh."""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuyard import files
from gpuyard.deploy import StatusCallback
from gpuyard.deploy.ansible.run import PlayRecap, reject_templates, run_playbook
from gpuyard.deploy.stack.environments import describe_framework
from gpuyard.deploy.stack.lock import Lock
from gpuyard.deploy.state import hold_directory
from gpuyard.errors import GpuyardError, UserMistake, quote
from gpuyard.specs.deployment import USER

PREFIX = Path("/opt/gpuyard")
_HOST = "this machine"
_RECORD = "installed.json"
_REMOVE = "apt-get remove"


@dataclass(frozen=True)
class InstallOptions:
    """The parts of the stack to install."""

    frameworks: tuple[str, ...] = ("pytorch",)
    toolkit: bool = True
    harden_ssh: bool = False
    users: tuple[str, ...] = ()


def gpu_variables(lock: Lock, frameworks: Sequence[str], *, toolkit: bool = True) -> dict[str, Any]:
    """Return the variables of the roles gpu-stack and containers for a lock."""
    family = lock.family(lock.cuda.version)
    return {
        "gpu_stack_driver": lock.driver.version,
        "gpu_stack_minimum_driver": family.minimum_driver if family else lock.driver.version,
        "gpu_stack_toolkit": lock.cuda.package if toolkit else "",
        "gpu_stack_frameworks": [describe_framework(lock, name) for name in frameworks],
        "containers_toolkit": lock.container_toolkit.version,
    }


def install(
    lock: Lock, options: InstallOptions, report: StatusCallback, *, dry_run: bool = False
) -> PlayRecap:
    """Install the lock's versions on this machine; repeating it changes nothing.

    A dry run returns the tasks that would change something.
    """
    variables = gpu_variables(lock, options.frameworks, toolkit=options.toolkit)
    for user in options.users:
        if not USER.fullmatch(user):
            raise UserMistake(f"expected a user name, got {quote(user)}")
    if os.geteuid() != 0:
        raise GpuyardError(
            "installing packages needs root; run `sudo $(command -v gpuyard) stack install`"
        )
    hosts = {
        "all": {
            "hosts": {
                _HOST: {
                    "ansible_connection": "local",
                    "ansible_become": False,  # it is root already
                    "ansible_python_interpreter": _find_python(),
                    "gpuyard_address": "127.0.0.1",
                    "gpuyard_roles": ["base", "gpu-stack", "containers"],
                }
            },
            "vars": {
                **variables,
                "base_alone": True,
                "base_harden_ssh": options.harden_ssh,
                "gpuyard_clock_is_kept": True,  # this machine's own time service stays
                "gpu_stack_without_gpu": True,
                "gpu_stack_prefix": str(PREFIX),
                "containers_users": list(options.users),
            },
        }
    }
    reject_templates(hosts)
    busy = "another gpuyard process is installing the stack; wait until it finishes"
    with hold_directory(_directory(), busy):
        # Each task is recorded at once, because its effect stays if a later task fails.
        on_change = None if dry_run else _record_task
        return run_playbook(
            _directory() / "ansible", hosts, report, check=dry_run, on_change=on_change
        )


def list_undo_commands(lock: Lock) -> list[str]:
    """Return commands that remove everything `install` has added, and nothing that was there before."""
    done = _read_tasks()
    commands = {  # by the name of the Ansible task that they undo
        "Let processes pin memory for RDMA and open many files": "rm /etc/security/limits.d/10-gpuyard.conf",
        "Allow only keys for ssh, not passwords": "rm /etc/ssh/sshd_config.d/10-gpuyard.conf",
        "Install the CUDA toolkit": f"{_REMOVE} --autoremove {lock.cuda.package}",
        "Install the driver": (
            f"{_REMOVE} --autoremove nvidia-open cuda-drivers nvidia-driver-pinning-{lock.driver.version}"
        ),
        "Add NVIDIA's package source": (
            "rm /etc/apt/sources.list.d/gpuyard-cuda.list /etc/apt/preferences.d/gpuyard-cuda "
            "/etc/apt/keyrings/gpuyard-cuda.asc"
        ),
        "Add Debian's contrib repository, which NVIDIA's packages need": (
            "rm /etc/apt/sources.list.d/gpuyard-contrib.sources"
        ),
        "Install nvidia-container-toolkit": f"{_REMOVE} --autoremove {lock.container_toolkit.package}",
        "Add the nvidia-container-toolkit repository": (
            "rm /etc/apt/sources.list.d/nvidia-container-toolkit.list /etc/apt/keyrings/nvidia-container-toolkit.asc"
        ),
        "Install Docker": f"{_REMOVE} --autoremove {lock.docker.package}",
        "Install the pinned packages": " ".join(
            ["rm -r", *(str(PREFIX / name) for name in lock.frameworks if (PREFIX / name).is_dir())]
        ),
    }
    return [command for task, command in commands.items() if task in done]


@dataclass(frozen=True)
class InstalledEnvironment:
    """A framework's environment on this machine, which every user can use."""

    framework: str
    package: str
    directory: Path

    @property
    def python(self) -> str:
        return f"{self.directory}/bin/python3"

    @property
    def activate(self) -> str:
        return f". {self.directory}/bin/activate"


def list_environments(lock: Lock) -> list[InstalledEnvironment]:
    """Return the environments of the lock's frameworks that exist on this machine."""
    environments = [
        InstalledEnvironment(name, framework.package, PREFIX / name)
        for name, framework in lock.frameworks.items()
    ]
    return [environment for environment in environments if Path(environment.python).exists()]


def _find_python() -> str:
    """Return the Python for Ansible: the system's, which has apt's library, or on a minimal Debian this one."""
    system = Path("/usr/bin/python3")
    return str(system) if system.exists() else sys.executable


def _directory() -> Path:
    return files.home() / "stack"


def _record_task(task: str) -> None:
    tasks = sorted({*_read_tasks(), task})
    files.write_text(_directory() / _RECORD, json.dumps(tasks, indent=1))


def _read_tasks() -> list[str]:
    try:
        tasks = json.loads((_directory() / _RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return [str(task) for task in tasks] if isinstance(tasks, list) else []
