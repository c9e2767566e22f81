"""How often a service may be asked, kept by all processes of a user together."""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Pace:
    """The least seconds between two of a kind; when each was last is in a file, which is locked while it is looked at."""

    file: Path
    seconds: Mapping[str, float]
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep

    def wait(self, *kinds: str) -> None:
        """Until one more of all these kinds may be sent; it counts from then on."""
        while (early := self._early(kinds)) > 0:
            self.sleep(early)  # not with the lock: others may be of a kind that need not wait

    def _early(self, kinds: tuple[str, ...]) -> float:
        with self._locked() as descriptor:
            last = _read(descriptor)
            now = self.clock()
            # what is said to have been in the future was before a clock was set back
            since = {kind: now - last[kind] for kind in kinds if last.get(kind, now + 1) <= now}
            early = max((self.seconds[kind] - gone for kind, gone in since.items()), default=0.0)
            if early <= 0:
                _write(descriptor, {**last, **dict.fromkeys(kinds, now)})
            return early

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
    except (ValueError, TypeError, AttributeError):  # new, or cut off with its writer
        return {}


def _write(descriptor: int, last: Mapping[str, float]) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(last).encode("ascii"), 0)
