"""A request rate limit that all processes of a user share."""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RateLimiter:
    """Enforces a minimum interval between two requests of a kind.

    A locked file records when the last request of each kind was sent.
    """

    file: Path
    interval_seconds: Mapping[str, float]
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep

    def wait(self, *kinds: str) -> None:
        """Wait until a request of all these kinds may be sent, and record it."""
        while (remaining := self._reserve(kinds)) > 0:
            self.sleep(remaining)  # without the lock: requests of other kinds need not wait

    def _reserve(self, kinds: tuple[str, ...]) -> float:
        """Record a request and return 0, or return the seconds until one is allowed."""
        with self._locked() as descriptor:
            last = _read(descriptor)
            now = self.clock()
            # A time in the future was recorded before the clock was set back.
            elapsed = {kind: now - last[kind] for kind in kinds if last.get(kind, now + 1) <= now}
            remaining = max(
                (self.interval_seconds[kind] - seconds for kind, seconds in elapsed.items()),
                default=0.0,
            )
            if remaining <= 0:
                _write(descriptor, {**last, **dict.fromkeys(kinds, now)})
            return remaining

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        self.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)


def _read(descriptor: int) -> dict[str, float]:
    try:
        document = json.loads(os.pread(descriptor, 4096, 0))
        return {str(kind): float(when) for kind, when in document.items()}
    except (ValueError, TypeError, AttributeError):  # new, or its writer was killed
        return {}


def _write(descriptor: int, last: Mapping[str, float]) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(last).encode("ascii"), 0)
