"""Fair turns: requests wait by user, users take turns, and no user runs more than a few requests at once."""

import threading
from collections import Counter, OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """A queue per user (by UID). Threads take requests from it."""

    def __init__(self, max_running_per_user: int) -> None:
        self._max_running = max_running_per_user
        self._waiting: OrderedDict[int, deque[T]] = OrderedDict()
        self._running: Counter[int] = Counter()
        self._changed = threading.Condition()

    def put(self, uid: int, request: T) -> None:
        with self._changed:
            self._waiting.setdefault(uid, deque()).append(request)
            self._changed.notify()

    def take(self) -> T:
        """Wait for the next request of the user whose turn it is. Call `finish` after it."""
        with self._changed:
            while (uid := self._next_user()) is None:
                self._changed.wait()
            requests = self._waiting.pop(uid)
            request = requests.popleft()
            if requests:
                self._waiting[uid] = requests  # behind all other users
            self._running[uid] += 1
            return request

    def finish(self, uid: int) -> None:
        """Let the next request of a user run."""
        with self._changed:
            self._running[uid] -= 1
            if not self._running[uid]:
                del self._running[uid]
            self._changed.notify()

    def _next_user(self) -> int | None:
        return next((uid for uid in self._waiting if self._running[uid] < self._max_running), None)
