"""Rate limits: a bucket of requests for each user or address, refilled steadily."""

import time
from dataclasses import dataclass, field

_MAX_KEYS = 10_000


@dataclass
class RateLimiter:
    """Allows `burst` requests at once and `per_second` in the long run, for each key."""

    per_second: float
    burst: float
    _buckets: dict[str, tuple[float, float]] = field(default_factory=dict)

    def allow(self, key: str) -> bool:
        """Count one request; return False if there were too many."""
        allowed = self.is_open(key)
        if allowed:
            tokens, now = self._buckets[key]
            self._buckets[key] = tokens - 1, now
        return allowed

    def is_open(self, key: str) -> bool:
        """Return whether a request would be allowed, without counting it."""
        now = time.monotonic()
        tokens, before = self._buckets.get(key, (self.burst, now))
        tokens = min(self.burst, tokens + (now - before) * self.per_second)
        if len(self._buckets) >= _MAX_KEYS and key not in self._buckets:
            self._buckets.clear()  # an attack with many addresses; everyone starts with a full bucket
        self._buckets[key] = tokens, now
        return tokens >= 1
