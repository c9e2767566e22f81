"""The clock that times leases: seconds since boot, and the ID of that boot. The wall clock is only for display."""

import time
from dataclasses import dataclass, field
from pathlib import Path

from gpuyard.errors import GpuyardError

LATEST_MOMENT = 221_845_392_000.0
"""The year 9000."""


def _read_boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return "unknown"
    except OSError as error:  # "unknown" would make every lease one of an earlier boot, and free
        raise GpuyardError(
            f"cannot lease GPUs now: the boot ID cannot be read ({error.strerror}); try again"
        ) from error


@dataclass(frozen=True)
class Clock:
    """The boot clock and the wall clock. Only tests set `wall_offset` and `boot_id`."""

    wall_offset: float = 0.0
    boot_id: str = field(default_factory=_read_boot_id)

    def boot(self) -> float:
        """Return the seconds since the machine started. This clock runs during suspend, and users cannot set it."""
        return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))

    def wall(self) -> float:
        """Return the seconds since 1970, for display; this clock may jump."""
        return time.time() + self.wall_offset

    def wall_at(self, boot: float) -> float:
        """Convert a time of the boot clock to the wall clock as it is set now."""
        return self.wall() + boot - self.boot()


def iso_timestamp(wall: float | None) -> str | None:
    """Format 1700000000.4 as "2023-11-14T22:13:20+00:00"."""
    if wall is None:
        return None
    from datetime import UTC, datetime

    return datetime.fromtimestamp(round_moment(wall), UTC).isoformat(timespec="seconds")


def round_moment(wall: float) -> int:
    """Round to a second between 1970 and 9000, which every time zone can show, whatever a store contains."""
    return round(min(max(wall, 0.0), LATEST_MOMENT))
