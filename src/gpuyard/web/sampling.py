"""One reading of each source, shared by all viewers: fifty open pages read the GPUs as often as one does."""

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from gpuyard.errors import GpuyardError

Read = Callable[[], Any]
_FIRST_SECONDS = 1.0


@dataclass(frozen=True)
class Sample:
    """A document, the time when it was read, and the error if the last attempt failed."""

    serial: int
    taken: float
    """Seconds since 1970."""
    document: Any = None
    error: str = ""
    tried: float = 0.0
    """When the last attempt to read ended, on the monotonic clock."""

    @property
    def age_seconds(self) -> float:
        return max(0.0, time.time() - self.taken)


class Sampler:
    """Reads a source every few seconds while somebody watches, and on demand otherwise."""

    def __init__(
        self, name: str, read: Read, seconds: float = 2.0, *, is_slow: bool = False
    ) -> None:
        """`is_slow` sources are read in the background: no viewer waits for a machine that does not answer."""
        self.name = name
        self._read, self._seconds, self._is_slow = read, seconds, is_slow
        self._latest: Sample | None = None
        self._reading: asyncio.Task[Sample] | None = None

    def expire(self) -> None:
        """Take a new sample at the next request, because somebody has changed something."""
        if self._latest is not None:
            self._latest = replace(self._latest, tried=-math.inf)

    async def current(self, *, newest: bool = False) -> Sample:
        """Return a sample that is not older than two periods, or one with `newest`; requests share a reading."""
        latest = self._latest
        age = time.monotonic() - latest.tried if latest else math.inf
        if latest and age < self._seconds:
            return latest
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._take())
        if latest and not newest and age < 2 * self._seconds:
            return latest  # recent enough; the new reading is for later viewers
        if not self._is_slow:
            # a viewer who leaves must not cancel the reading of the others
            return await asyncio.shield(self._reading)
        if latest is not None:
            return latest
        await asyncio.wait({self._reading}, timeout=_FIRST_SECONDS)
        unread = Sample(0, time.time(), error="the first reading is under way")
        return self._latest or unread

    @property
    def remaining_seconds(self) -> float:
        """The time until a new sample is due."""
        if self._reading is not None and not self._reading.done():
            return _FIRST_SECONDS
        tried = self._latest.tried if self._latest else -math.inf
        return max(0.0, self._seconds - (time.monotonic() - tried))

    async def _take(self) -> Sample:
        before = self._latest
        serial = before.serial + 1 if before else 1
        try:
            document = await asyncio.to_thread(self._read)
            sample = Sample(serial, time.time(), document, tried=time.monotonic())
        except (GpuyardError, OSError) as error:
            # the last document stays, with its age
            document = before.document if before else None
            read_at = before.taken if before and document is not None else time.time()
            sample = Sample(serial, read_at, document, str(error), tried=time.monotonic())
        self._latest = sample
        return sample
