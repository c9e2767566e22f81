"""A limit for long computations: a few at a time, each result kept for a while."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

from gpuyard.errors import GpuyardError

_MAX_KEPT = 64
_KEEP_SECONDS = 300.0
_WAIT_SECONDS = 20.0


class WorkLimit:
    """Runs at most `most` computations at the same time, and repeats none within five minutes."""

    def __init__(self, most: int) -> None:
        self._slots = threading.BoundedSemaphore(most)
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, tuple[float, Any]] = OrderedDict()

    def run(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """Return the kept or a new result; raise GpuyardError if the server is too busy."""
        result = self._find(key)
        if result is not None:
            return result
        if not self._slots.acquire(timeout=_WAIT_SECONDS):
            raise GpuyardError("the server is busy with other computations; try again in a moment")
        try:
            result = self._find(key)  # somebody else may have asked the same meanwhile
            if result is None:
                result = compute()
                self._keep(key, result)
        finally:
            self._slots.release()
        return result

    def _find(self, key: Hashable) -> Any:
        with self._lock:
            kept, value = self._kept.get(key, (0.0, None))
            return value if time.monotonic() - kept < _KEEP_SECONDS else None

    def _keep(self, key: Hashable, value: Any) -> None:
        with self._lock:
            self._kept[key] = time.monotonic(), value
            while len(self._kept) > _MAX_KEPT:
                self._kept.popitem(last=False)


heavy = WorkLimit(2)
"""Plans, simulations, and validations."""
