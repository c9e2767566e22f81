"""Collect the facts about this machine's stack. A missing tool is a fact too."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from gpuyard.deploy.ansible.modules.nvidia_gpus import scan_gpus
from gpuyard.deploy.stack.facts import (
    StackFacts,
    parse_environment,
    parse_gpus,
    parse_packages,
    parse_runtimes,
)
from gpuyard.deploy.stack.install import PREFIX
from gpuyard.deploy.stack.lock import Lock

_TIMEOUT_SECONDS = 60
_QUERY = "--query-gpu=name,driver_version"
_DOCKER_CONFIG = Path("/etc/docker/daemon.json")


def collect_facts(lock: Lock) -> StackFacts:
    bus = scan_gpus()
    gpus, problem = parse_gpus(
        _run(["nvidia-smi", f"{_QUERY},compute_cap", "--format=csv,noheader"])
    )
    if "not a valid field" in problem:  # an old driver
        gpus, problem = parse_gpus(_run(["nvidia-smi", _QUERY, "--format=csv,noheader"]))
    environments: dict[str, dict[str, str]] = {
        name: parse_environment(_run([str(python), "-m", "pip", "list", "--format", "json"]))
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
        packages=parse_packages(
            _run(["dpkg-query", "-W", "-f", "${Package}\\t${Version}\\t${Status}\\n"])
        ),
        environments=environments,
        docker=_run(["docker", "--version"]).strip(),
        docker_runtimes=parse_runtimes(_read_docker_config()),
    )


def _run(argv: Sequence[str]) -> str:
    """Return the output of a program, or an empty string if it is not installed."""
    try:
        done = subprocess.run(
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if argv[0] == "nvidia-smi" else subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def _read_docker_config() -> str:
    try:
        return _DOCKER_CONFIG.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""
