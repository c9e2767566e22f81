"""What users have used up: sums over leases that have ended, made by SQLite, and for a long history not again at once.

Whoever waits asks for them many times a minute, and a million leases are read in a second.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping

from gpuyard.share.store.database import Database
from gpuyard.share.store.lease import WHOLE
from gpuyard.share.turns.rules import WEEK_SECONDS, Rules, decay

Sums = Mapping[str, float]
_AT_ONCE_SECONDS = 0.01
_TIMES = 50
_MOST_KEPT = 20  # half-lives that an admin tries one after the other


class PastUse:
    """One for all who ask in a process."""

    def __init__(self) -> None:
        self._kept: dict[object, tuple[float, Sums]] = {}
        self._lock = threading.Lock()

    def of_last_week(self, database: Database, now: float) -> dict[int, float]:
        """GPU-seconds in the last 7 days, by uid."""

        def read() -> Sums:
            return _sums(
                database,
                """SELECT uid, SUM(MAX(0, MIN("end", :now) - MAX(start, :since)) * count * parts)
                FROM leases WHERE ended IS NOT NULL AND "end" > :since AND start < :now GROUP BY uid""",
                now=now,
                since=now - WEEK_SECONDS,
            )

        return {int(uid): used for uid, used in self._current("week", read).items()}

    def decayed(self, database: Database, rules: Rules, now: float) -> Sums:
        """GPU-seconds as they still count, by uid or, with fair share by group, by main group."""
        half_life = rules.half_life_seconds
        if half_life is None:
            return {}
        whose = '"group"' if rules.fair_share == "group" else "uid"

        def read() -> Sums:
            database.connection.create_function(
                "decay", 1, lambda age: decay(max(0.0, age), half_life), deterministic=True
            )
            # the integral of what each second still counts
            found = _sums(
                database,
                f"""SELECT {whose}, SUM((decay(:now - MAX("end", start)) - decay(:now - start)) * count * parts)
                FROM leases WHERE ended IS NOT NULL AND "end" > :since AND start < :now GROUP BY {whose}""",  # noqa: S608
                now=now,
                since=now - 10 * half_life,
            )
            return {name: half_life / math.log(2) * used for name, used in found.items()}

        return self._current((whose, half_life), read)

    def _current(self, key: object, read: Callable[[], Sums]) -> Sums:
        """What takes long is looked at again after many times as long: never more than a small part of all time."""
        with self._lock:
            until, sums = self._kept.get(key, (0.0, {}))
            begun = time.monotonic()
            if begun < until:
                return sums
            sums = read()
            took = time.monotonic() - begun
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            if took > _AT_ONCE_SECONDS:
                self._kept[key] = time.monotonic() + _TIMES * took, sums
            return sums


def _sums(database: Database, statement: str, **values: float) -> dict[str, float]:
    with database.sentences():
        rows = database.connection.execute(statement, values).fetchall()
    return {str(name): (used or 0.0) / WHOLE for name, used in rows}
