"""The processor of this host: its model, and the cores that this process may use."""

import os
import platform
from pathlib import Path

_CPU = Path("/sys/devices/system/cpu")
_QUOTA_V2 = Path("/sys/fs/cgroup/cpu.max")
_QUOTA_V1 = Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
_PERIOD_V1 = Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us")


def usable_cores() -> tuple[int, ...]:
    """Return the cores that this process may use, with the hardware threads of each core adjacent.

    If you cut the result into even runs, no two workers share a core. A container's CPU quota limits the count.
    """
    if hasattr(os, "sched_getaffinity"):
        cores = sorted(os.sched_getaffinity(0), key=_get_position)
    else:
        cores = list(range(os.cpu_count() or 1))
    quota = _read_cpu_quota()
    return tuple(cores if quota is None else cores[: max(1, int(quota))])


def _get_position(core: int) -> tuple[int, int, int]:
    topology = _CPU / f"cpu{core}" / "topology"
    try:
        package = int((topology / "physical_package_id").read_text())
        return package, int((topology / "core_id").read_text()), core
    except (OSError, ValueError):
        return 0, core, core


def _read_cpu_quota() -> float | None:
    try:
        if _QUOTA_V2.exists():
            quota, period = _QUOTA_V2.read_text().split()
        else:
            quota, period = _QUOTA_V1.read_text(), _PERIOD_V1.read_text()
        return int(quota) / int(period) if int(quota) > 0 else None
    except (OSError, ValueError):  # "max", or no cgroup at all
        return None


def cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def os_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return f"{platform.system()} {platform.mac_ver()[0]}".strip()
