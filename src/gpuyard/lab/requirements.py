"""What a lab needs of the machine, said in one sentence where it is not there."""

import importlib.util
import os
import sys
from pathlib import Path

from gpuyard.errors import MissingRequirement

_CAP_NET_ADMIN, _CAP_SYS_ADMIN = 12, 21


def check_can_make_labs() -> None:
    """Raises MissingRequirement with the next step."""
    if sys.platform != "linux":
        raise MissingRequirement(
            "a lab is made of Linux network namespaces; everything else in gpuyard works without"
        )
    if not _has_rights():
        raise MissingRequirement(
            "a lab needs root, or CAP_NET_ADMIN and CAP_SYS_ADMIN, to make network namespaces: run "
            "it with sudo; everything else in gpuyard works without"
        )
    if importlib.util.find_spec("pyroute2") is None:
        raise MissingRequirement(
            "a lab needs pyroute2, which is not installed: pip install 'gpuyard[lab]'"
        )


def _has_rights() -> bool:
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        effective = next(line for line in status.splitlines() if line.startswith("CapEff:"))
        bits = int(effective.split()[1], 16)
    except (OSError, StopIteration, ValueError, IndexError):
        return os.geteuid() == 0
    return bool(bits >> _CAP_NET_ADMIN & 1 and bits >> _CAP_SYS_ADMIN & 1)
