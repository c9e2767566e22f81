"""Reads the speeds at which this machine's network cards run, from sysfs."""

from pathlib import Path

_SYSFS = Path("/sys/class")
_MAX_CARDS = 16


def read_card_speeds(sysfs: Path = _SYSFS) -> dict[str, float]:
    """Return the bits per second of each Ethernet and InfiniBand card that is up; virtual interfaces are left out."""
    speeds: dict[str, float] = {}
    for interface in sorted(sysfs.glob("net/*/device"))[:_MAX_CARDS]:
        if (megabits := _read_number(interface.with_name("speed"))) > 0:  # -1 if it is down
            speeds[interface.parent.name] = megabits * 1e6
    for rate in sorted(sysfs.glob("infiniband/*/ports/*/rate"))[:_MAX_CARDS]:
        if (gigabits := _read_number(rate)) > 0:  # "200 Gb/sec (4X HDR)"
            speeds[rate.parts[-4]] = gigabits * 1e9
    return speeds


def _read_number(path: Path) -> float:
    try:
        return float(path.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0.0
