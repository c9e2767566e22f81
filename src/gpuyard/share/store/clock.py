"""Time as leases count it: seconds since this boot, and which boot that is. The wall clock is only shown."""

import time
from dataclasses import dataclass, field
from pathlib import Path

from gpuyard.errors import GpuyardError


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return "unknown"
    except OSError as error:  # not "unknown": every lease would be of another boot, and free
        raise GpuyardError(
            f"no lease can be given now, because the boot can't be named: {error.strerror}; try again"
        ) from error


def _since_boot() -> float:
    # runs on while the machine sleeps, and no one can set it
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(frozen=True)
class Clock:
    """Tests set `wall_offset` and `boot_id`; nothing else does."""

    wall_offset: float = 0.0
    boot_id: str = field(default_factory=_boot_id)

    def boot(self) -> float:
        """Seconds since the machine started."""
        return _since_boot()

    def wall(self) -> float:
        """Seconds since 1970, for people to read; it may jump."""
        return time.time() + self.wall_offset

    def wall_at(self, boot: float) -> float:
        """What the wall clock shows then, as far as can be said now."""
        return self.wall() + boot - self.boot()


def stamp(wall: float | None) -> str | None:
    """1700000000.4 → "2023-11-14T22:13:20+00:00", to the nearest second."""
    if wall is None:
        return None
    from datetime import UTC, datetime

    return datetime.fromtimestamp(round(wall), UTC).isoformat(timespec="seconds")
