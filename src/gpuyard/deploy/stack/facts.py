"""What a machine has of the stack: how tools' outputs are read, apart from how they are asked."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuyard.web_client import json_of

_REFUSED = re.compile(
    r"not a valid field|has failed|Failed to initialize|couldn't|could not|No devices",
    re.IGNORECASE,
)
_PACKAGE = re.compile(
    r"^([a-z0-9][a-z0-9.+-]*)(?::[a-z0-9]+)?\t([^\t\n]+)\tinstall ok installed", re.MULTILINE
)


@dataclass(frozen=True)
class DetectedGpu:
    """One, as the driver tells of it."""

    name: str
    driver: str
    capability: str | None
    """Like 8.9; drivers before 510 don't say."""


@dataclass(frozen=True)
class StackFacts:
    """Everything that `status` judges by."""

    gpus_on_bus: int = 0
    open_modules: bool = True
    nouveau: bool = False
    secure_boot: bool = False
    loaded_driver: str = ""
    gpus: tuple[DetectedGpu, ...] = ()
    smi_problem: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)
    environments: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    docker: str = ""
    docker_runtimes: tuple[str, ...] = ()


def read_gpus(output: str) -> tuple[tuple[DetectedGpu, ...], str]:
    """Of `nvidia-smi --query-gpu=name,driver_version,compute_cap --format=csv,noheader`, or without the last; or its
    complaint."""
    lines = [line for line in output.splitlines() if line.strip()]
    if not lines or _REFUSED.search(output):
        return (), " ".join(output.split())[:300]
    gpus = []
    for line in lines:
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) not in (2, 3):
            return (), f"nvidia-smi said {lines[0][:200]!r}"
        capability = cells[2] if len(cells) == 3 and re.fullmatch(r"\d+\.\d+", cells[2]) else None
        gpus.append(DetectedGpu(cells[0], cells[1], capability))
    return tuple(gpus), ""


def read_packages(output: str) -> dict[str, str]:
    """Of `dpkg-query -W -f '${Package}\\t${Version}\\t${Status}\\n'`: those that are installed."""
    return dict(match.groups() for match in _PACKAGE.finditer(output))  # type: ignore[misc]


def read_environment(output: str) -> dict[str, str]:
    """Of `pip list --format json`."""
    try:
        listed = json_of(output)
        return {one["name"].lower().replace("_", "-"): str(one["version"]) for one in listed}
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}


def read_runtimes(daemon_json: str) -> tuple[str, ...]:
    """Of Docker's daemon.json."""
    try:
        return tuple(json_of(daemon_json).get("runtimes", {}))
    except (ValueError, AttributeError, TypeError):
        return ()
