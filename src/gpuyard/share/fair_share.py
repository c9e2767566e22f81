"""Quotas and fair share: what groups may still lease, and how much users have used, which decays with a half-life.

SQLite sums the leases that have ended. The sums over a long history are kept for a while, because waiting clients ask
for them many times per minute and a million leases take a second to read.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from gpuyard.share.caller import groups_of, user_name
from gpuyard.share.config import Rules
from gpuyard.share.models import WHOLE, Lease
from gpuyard.share.queue import Allowance
from gpuyard.share.store import Store

Sums = Mapping[str, float]
_WEEK_SECONDS = 7 * 86400.0
_FAST_SECONDS = 0.01  # sums that take no longer are always calculated again
_CACHE_FACTOR = 50  # slower ones are kept for this many times as long as they took
_MAX_CACHED = 20  # an admin may try several half-lives


def calculate_allowance(
    rules: Rules, active: Sequence[Lease], past: Mapping[int, float], now: float
) -> Allowance:
    """Calculate what groups may still lease.

    `past` has the GPU-seconds in the last week by UID, for leases that have ended.
    """
    groups = {uid: groups_of(uid) for uid in {*past, *(lease.uid for lease in active)}}
    quotas = dict(rules.quotas)
    for uid, names in groups.items():
        own = rules.quotas_of(user_name(uid), names)
        groups[uid] = names | own.keys()
        quotas |= own
    used = {
        group: frozenset(
            gpu
            for lease in active
            if lease.held and group in groups[lease.uid]
            for gpu in lease.gpus
        )
        for group in quotas
    }
    remaining = {group: max(0, quota - len(used[group])) for group, quota in quotas.items()}
    for group, hours in rules.weekly_hours.items():
        members = {uid for uid in groups if group in groups[uid]}
        used_seconds = sum(past[uid] for uid in members & past.keys())
        used_seconds += sum(
            _gpu_seconds(lease, now - _WEEK_SECONDS, now)
            for lease in active
            if lease.held and lease.uid in members
        )
        if used_seconds >= hours * 3600:
            remaining[group] = -1
    return Allowance(remaining, groups, used)


def recent_use(
    rules: Rules,
    held: Sequence[Lease],
    now: float,
    waiting: Sequence[Lease] = (),
    past: Mapping[str, float] | None = None,
) -> dict[int, float]:
    """Return decayed GPU-seconds by UID. With fair share by group, each user has the sum of their group.

    `past` has the decayed GPU-seconds of other leases by UID or group.
    """
    if rules.half_life_seconds is None:
        return {}
    half_life = rules.half_life_seconds

    def owner(lease: Lease) -> str:
        return lease.group if rules.fair_share == "group" else str(lease.uid)

    used = dict(past or {})
    for lease in held:
        start, end = _clamp_times(lease, now)
        # the integral of the decay over the lease
        decayed_seconds = (
            half_life / math.log(2) * (decay(now - end, half_life) - decay(now - start, half_life))
        )
        gpus = lease.count * lease.parts / WHOLE
        used[owner(lease)] = used.get(owner(lease), 0.0) + decayed_seconds * gpus
    return {lease.uid: used.get(owner(lease), 0.0) for lease in (*held, *waiting)}


def decay(age_seconds: float, half_life: float) -> float:
    """Return the weight of use at this age."""
    return float(0.5 ** (age_seconds / half_life))


def _gpu_seconds(lease: Lease, since: float, now: float) -> float:
    start, end = _clamp_times(lease, now)
    return max(0.0, end - max(start, since)) * lease.count * lease.parts / WHOLE


def _clamp_times(lease: Lease, now: float) -> tuple[float, float]:
    """Return start and end by the wall clock, not after now, even if that clock was set back."""
    start = now if lease.start is None else min(lease.start, now)
    return start, max(start, now if lease.end is None else min(lease.end, now))


class PastUse:
    """Sums over leases that have ended; one object for all threads of a process."""

    def __init__(self) -> None:
        self._cache: dict[object, tuple[float, Sums]] = {}
        self._lock = threading.Lock()

    def last_week(self, store: Store, now: float) -> dict[int, float]:
        """Return GPU-seconds in the last 7 days by UID."""

        def read() -> Sums:
            return _read_sums(
                store,
                """SELECT uid, SUM(MAX(0, MIN("end", :now) - MAX(start, :since)) * count * parts)
                FROM leases WHERE end_reason IS NOT NULL AND "end" > :since AND start < :now GROUP BY uid""",
                now=now,
                since=now - _WEEK_SECONDS,
            )

        return {int(uid): used for uid, used in self._read_cached("week", read).items()}

    def decayed(self, store: Store, rules: Rules, now: float) -> Sums:
        """Return decayed GPU-seconds by UID or, with fair share by group, by primary group."""
        half_life = rules.half_life_seconds
        if half_life is None:
            return {}
        column = '"group"' if rules.fair_share == "group" else "uid"

        def read() -> Sums:
            store.connection.create_function(
                "decay", 1, lambda age: decay(max(0.0, age), half_life), deterministic=True
            )
            # the integral of the decay over each lease
            sums = _read_sums(
                store,
                f"""SELECT {column}, SUM((decay(:now - MAX("end", start)) - decay(:now - start)) * count * parts)
                FROM leases WHERE end_reason IS NOT NULL AND "end" > :since AND start < :now GROUP BY {column}""",  # noqa: S608
                now=now,
                since=now - 10 * half_life,
            )
            return {name: half_life / math.log(2) * used for name, used in sums.items()}

        return self._read_cached((column, half_life), read)

    def _read_cached(self, key: object, read: Callable[[], Sums]) -> Sums:
        """Keep slow sums for 50 times as long as they took, so that summing uses at most 2% of the time."""
        with self._lock:
            expiry, sums = self._cache.get(key, (0.0, {}))
            start = time.monotonic()
            if start < expiry:
                return sums
            sums = read()
            seconds = time.monotonic() - start
            if len(self._cache) >= _MAX_CACHED:
                self._cache.clear()
            if seconds > _FAST_SECONDS:
                self._cache[key] = time.monotonic() + _CACHE_FACTOR * seconds, sums
            return sums


def _read_sums(store: Store, statement: str, **values: float) -> dict[str, float]:
    return {str(name): (used or 0.0) / WHOLE for name, used in store.select(statement, values)}
