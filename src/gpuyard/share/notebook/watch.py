"""Looking after a notebook while it runs: says when it answers, and ends it when it was idle for long."""

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from gpuyard.share.notebook.jupyter import JupyterServer
from gpuyard.share.watch import processes

_READY_SECONDS = 120.0
_LONGEST_PAUSE_SECONDS = 30.0


@dataclass
class NotebookWatch:
    """A thread beside the launcher, which waits for signals itself."""

    server: JupyterServer
    lease: str
    lock: tuple[int, int]
    idle_seconds: float | None
    grace_seconds: float
    ready: Callable[[], None]
    say: Callable[[str], None]
    _over: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """All signals stay the launcher's."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            threading.Thread(target=self._run, daemon=True).start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def end(self) -> None:
        """The command has ended."""
        self._over.set()

    def _run(self) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while self.server.status() is None:
            if time.monotonic() > deadline:
                self.say(f"Jupyter has not answered for {_READY_SECONDS:.0f} s; it is ended")
                self._stop()
                return
            if self._over.wait(0.2):
                return
        if self.server.is_open():
            self.say(
                "this Jupyter answers without its token, so everybody here could use it; ended"
            )
            self._stop()
            return
        self.ready()
        if self.idle_seconds is not None:
            self._until_idle(self.idle_seconds)

    def _until_idle(self, idle_seconds: float) -> None:
        pause = min(_LONGEST_PAUSE_SECONDS, max(0.1, idle_seconds / 10))
        active_at, last = time.monotonic(), None
        while not self._over.wait(pause):
            status = self.server.status()
            if status is None:
                continue  # too busy to answer, or about to end
            if status.get("last_activity") != last:
                last, active_at = status.get("last_activity"), time.monotonic()
            elif time.monotonic() - active_at >= idle_seconds:
                if self.server.is_busy():
                    active_at = time.monotonic()
                    continue
                from gpuyard.units import format_seconds

                self.say(
                    f"no kernel of notebook {self.lease} was busy for {format_seconds(idle_seconds)}; "
                    "its GPUs are given back, its files stay"
                )
                self._stop()
                return

    def _stop(self) -> None:
        """Jupyter ends its kernels itself; what is left after the grace is ended."""
        os.kill(os.getpid(), signal.SIGTERM)  # the launcher passes it on
        if not self._over.wait(self.grace_seconds):
            marks = processes.Marks(self.lease, os.getuid(), self.lock)
            processes.stop([marks], self.grace_seconds)
