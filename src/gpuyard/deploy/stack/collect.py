"""The facts of this machine; a tool that is not there is a fact, too."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from gpuyard.deploy.ansible.modules.nvidia_gpus import found
from gpuyard.deploy.stack.facts import (
    StackFacts,
    read_environment,
    read_gpus,
    read_packages,
    read_runtimes,
)
from gpuyard.deploy.stack.install import PREFIX
from gpuyard.deploy.stack.lock import Lock

_SECONDS = 60
_QUERY = "--query-gpu=name,driver_version"
_DAEMON = Path("/etc/docker/daemon.json")


def collect(lock: Lock) -> StackFacts:
    """Ask this machine."""
    bus = found()
    gpus, problem = read_gpus(
        _said(["nvidia-smi", f"{_QUERY},compute_cap", "--format=csv,noheader"])
    )
    if "not a valid field" in problem:
        gpus, problem = read_gpus(_said(["nvidia-smi", _QUERY, "--format=csv,noheader"]))
    environments: dict[str, dict[str, str]] = {
        name: read_environment(_said([str(python), "-m", "pip", "list", "--format", "json"]))
        for name in lock.frameworks
        if (python := PREFIX / name / "bin/python").exists()
    }
    return StackFacts(
        gpus_on_bus=len(bus["gpus"]),
        open_modules=bus["open_modules"],
        nouveau=bus["nouveau"],
        secure_boot=bus["secure_boot"],
        loaded_driver=bus["loaded"],
        gpus=gpus,
        smi_problem=problem,
        packages=read_packages(
            _said(["dpkg-query", "-W", "-f", "${Package}\\t${Version}\\t${Status}\\n"])
        ),
        environments=environments,
        docker=_said(["docker", "--version"]).strip(),
        docker_runtimes=read_runtimes(_daemon()),
    )


def _said(argv: Sequence[str]) -> str:
    """All that it prints; nothing where it is not there."""
    try:
        done = subprocess.run(
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if argv[0] == "nvidia-smi" else subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def _daemon() -> str:
    try:
        return _DAEMON.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""
