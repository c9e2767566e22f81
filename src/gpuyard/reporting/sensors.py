"""Senses what a rank's loop does not time itself: waiting in DDP, its links, its GPU's clock, and its machine's load.

Any of it may be missing, and an error must not stop the training: a sensor that fails once is not asked again.
"""

import contextlib
import os
from collections.abc import Callable
from typing import Any

from gpuyard.cpu import usable_cores
from gpuyard.reporting.ddp import DdpExchange, find_ddp_models
from gpuyard.reporting.gpu_state import open_gpu
from gpuyard.reporting.network_cards import read_card_speeds
from gpuyard.reporting.tcp_links import LinkMeter

_SAMPLE_SECONDS = 0.1  # between two looks at DDP's times, which cost about 60 µs each


class RankSensors:
    """The sensors of this process, created once it is warm, because libraries connect in the first steps."""

    def __init__(self, workers: int) -> None:
        self._ddp: DdpExchange | None = None
        self._due = 0.0
        self._waits: list[float] = []
        self._readers: list[Callable[[], dict[str, Any]]] = [_read_load]
        with contextlib.suppress(Exception):
            gpu = open_gpu()
            if gpu is not None:
                self._readers.append(gpu.read)
        if workers == 1:
            return
        with contextlib.suppress(Exception):
            models = find_ddp_models()
            self._ddp = DdpExchange(models) if models else None
        with contextlib.suppress(Exception):
            links = LinkMeter()
            self._readers.append(lambda: {"links": links.read()})
            cards = read_card_speeds()
            self._readers.append(lambda: {"cards": cards})

    def sample(self, now: float) -> None:
        """Look at the newest step; called after every step."""
        if self._ddp is None or now < self._due:
            return
        self._due = now + _SAMPLE_SECONDS
        try:
            wait = self._ddp.read()
        except Exception:  # noqa: BLE001 - torch calls this interface a prototype
            self._ddp = None
            return
        if wait is not None:
            self._waits.append(wait)

    def read(self) -> dict[str, Any]:
        """Return what was sensed since the last call, by the keys of a line."""
        sensed: dict[str, Any] = {}
        if self._waits:
            sensed["ddp_exchange_seconds"] = sum(self._waits) / len(self._waits)
            self._waits = []
        for reader in list(self._readers):
            try:
                sensed |= reader()
            except Exception:  # noqa: BLE001 - a lost GPU, or a strange socket
                self._readers.remove(reader)
        return sensed


def _read_load() -> dict[str, Any]:
    """Return the processes that run or wait for a CPU on this machine, over the last minute, per usable core."""
    return {"load_per_core": round(os.getloadavg()[0] / max(1, len(usable_cores())), 3)}
