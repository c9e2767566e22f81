"""The roles base, gpu-stack and containers on the machine at hand, by Ansible without ssh."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuyard import files
from gpuyard.deploy.ansible.package import described_framework
from gpuyard.deploy.ansible.run import PlayRecap, play, refuse_templates
from gpuyard.deploy.stack.lock import Lock
from gpuyard.deploy.state import alone
from gpuyard.errors import GpuyardError, UserMistake, quoted
from gpuyard.specs.deployment import USER

Tell = Callable[[str], None]
PREFIX = Path("/opt/gpuyard")
_HOST = "this machine"
_RECORD = "installed.json"
_APT = "apt-get remove"


@dataclass(frozen=True)
class Wanted:
    """What a user has chosen of the stack."""

    frameworks: tuple[str, ...] = ("pytorch",)
    toolkit: bool = True
    harden_ssh: bool = False
    users: tuple[str, ...] = ()


def gpu_variables(lock: Lock, frameworks: Sequence[str], *, toolkit: bool = True) -> dict[str, Any]:
    """What the roles gpu-stack and containers are told of a lock."""
    return {
        "gpu_stack_driver": lock.driver.version,
        "gpu_stack_toolkit": lock.cuda.package if toolkit else "",
        "gpu_stack_frameworks": [described_framework(lock, name) for name in frameworks],
        "containers_toolkit": lock.container_toolkit.version,
    }


def install(lock: Lock, wanted: Wanted, tell: Tell, *, dry_run: bool = False) -> PlayRecap:
    """Bring this machine to the lock; a second time changes nothing. A dry run says which tasks would change it."""
    variables = gpu_variables(lock, wanted.frameworks, toolkit=wanted.toolkit)
    for user in wanted.users:
        if not USER.fullmatch(user):
            raise UserMistake(f"expected the name of a user, got {quoted(user)}")
    if os.geteuid() != 0:
        raise GpuyardError(
            "packages are installed by root: run it with sudo, as `sudo $(command -v gpuyard) stack install`"
        )
    hosts = {
        "all": {
            "hosts": {
                _HOST: {
                    "ansible_connection": "local",
                    "ansible_become": False,  # it is root already
                    "ansible_python_interpreter": "/usr/bin/python3",
                    "gpuyard_address": "127.0.0.1",
                    "gpuyard_roles": ["base", "gpu-stack", "containers"],
                }
            },
            "vars": {
                **variables,
                "base_alone": True,
                "base_harden_ssh": wanted.harden_ssh,
                "gpuyard_clock_is_kept": True,  # by whatever this machine has
                "gpu_stack_without_gpu": True,
                "gpu_stack_prefix": str(PREFIX),
                "containers_users": list(wanted.users),
            },
        }
    }
    refuse_templates(hosts)
    with alone(_directory(), "another gpuyard is installing the stack here; wait for it to end"):
        # at once, for what is done stays where a later task fails
        remember = None if dry_run else _remember
        return play(_directory() / "ansible", hosts, tell, check=dry_run, remember=remember)


def undo(lock: Lock) -> list[str]:
    """Commands that take away what `install` has ever put here, and nothing that was here before."""
    done = _remembered()
    ways = {
        "Let processes pin memory for RDMA and open many files": "rm /etc/security/limits.d/10-gpuyard.conf",
        "Take keys only, and no passwords": "rm /etc/ssh/sshd_config.d/10-gpuyard.conf",
        "Install the CUDA toolkit": f"{_APT} --autoremove {lock.cuda.package}",
        "Install the driver": f"{_APT} --autoremove nvidia-open cuda-drivers nvidia-driver-pinning-{lock.driver.version}",
        "Make NVIDIA's packages known": f"{_APT} cuda-keyring",
        "Let Debian's contrib be there, which NVIDIA's packages need": (
            "rm /etc/apt/sources.list.d/gpuyard-contrib.sources"
        ),
        "Install the toolkit": f"{_APT} --autoremove {lock.container_toolkit.package}",
        "Make the toolkit's packages known": (
            "rm /etc/apt/sources.list.d/nvidia-container-toolkit.list /etc/apt/keyrings/nvidia-container-toolkit.asc"
        ),
        "Install Docker": f"{_APT} --autoremove {lock.docker.package}",
        "Install exactly that": " ".join(
            ["rm -r", *(str(PREFIX / name) for name in lock.frameworks if (PREFIX / name).is_dir())]
        ),
    }
    return [way for task, way in ways.items() if task in done]


def _directory() -> Path:
    return files.home() / "stack"


def _remember(task: str) -> None:
    known = sorted({*_remembered(), task})
    files.write_text(_directory() / _RECORD, json.dumps(known, indent=1))


def _remembered() -> list[str]:
    try:
        known = json.loads((_directory() / _RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return [str(task) for task in known] if isinstance(known, list) else []
