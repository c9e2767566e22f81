"""Facts about a machine's stack, parsed from the output of nvidia-smi, dpkg, pip, and Docker."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuyard.web_client import parse_json

_SMI_ERROR = re.compile(
    r"not a valid field|has failed|Failed to initialize|couldn't|could not|No devices",
    re.IGNORECASE,
)
_PACKAGE = re.compile(
    r"^([a-z0-9][a-z0-9.+-]*)(?::[a-z0-9]+)?\t([^\t\n]+)\tinstall ok installed", re.MULTILINE
)


@dataclass(frozen=True)
class DetectedGpu:
    """A GPU as the driver reports it."""

    name: str
    driver: str
    capability: str | None
    """Compute capability, like 8.9; drivers before 510 do not report it."""


@dataclass(frozen=True)
class StackFacts:
    """Everything that `status` compares with the lock."""

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


def parse_gpus(output: str) -> tuple[tuple[DetectedGpu, ...], str]:
    """Return the GPUs, and the error message if nvidia-smi failed.

    The output is that of `nvidia-smi --query-gpu=name,driver_version,compute_cap --format=csv,noheader`; the last field
    is optional.
    """
    lines = [line for line in output.splitlines() if line.strip()]
    if not lines or _SMI_ERROR.search(output):
        return (), " ".join(output.split())[:300]
    gpus = []
    for line in lines:
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) not in (2, 3):
            return (), f"unexpected output of nvidia-smi: {lines[0][:200]!r}"
        capability = cells[2] if len(cells) == 3 and re.fullmatch(r"\d+\.\d+", cells[2]) else None
        gpus.append(DetectedGpu(cells[0], cells[1], capability))
    return tuple(gpus), ""


def parse_packages(output: str) -> dict[str, str]:
    """Return the installed packages from `dpkg-query -W -f '${Package}\\t${Version}\\t${Status}\\n'`."""
    return dict(match.groups() for match in _PACKAGE.finditer(output))  # type: ignore[misc]


def parse_environment(output: str) -> dict[str, str]:
    """Return the packages from `pip list --format json`."""
    try:
        entries = parse_json(output)
        return {entry["name"].lower().replace("_", "-"): str(entry["version"]) for entry in entries}
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}


def parse_runtimes(daemon_json: str) -> tuple[str, ...]:
    """Return the container runtimes in Docker's daemon.json."""
    try:
        return tuple(parse_json(daemon_json).get("runtimes", {}))
    except (ValueError, AttributeError, TypeError):
        return ()
