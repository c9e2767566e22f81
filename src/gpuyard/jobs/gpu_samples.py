"""The use, memory, and power of a job's GPUs over time: written while the job runs, and read for its page."""

import contextlib
import json
import os
import stat
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpuyard.reporting.lines import LineAppender

if TYPE_CHECKING:
    from gpuyard.reporting.ranks import RankWindow
    from gpuyard.share.gpus import Reading

_MIN_SECONDS, _MAX_SECONDS = 2.0, 120.0  # between two samples
_SHARE_OF_ELAPSED = 1 / 50  # a month of eight GPUs has about 7 MB
_MAX_BYTES = 32_000_000
_MAX_GPUS = 1024
_MAX_NUMBER = 1e15


@dataclass(frozen=True)
class GpuSample:
    """One GPU at one moment; None is a value that the driver does not know."""

    at: float
    """Seconds since 1970."""
    gpu: str
    """The index of the GPU, after its host if the job has several."""
    utilization: float | None
    memory_used_bytes: float | None
    power_watts: float | None


def start_sampling(
    path: Path, gpus: Sequence[int], read: "Callable[[], Mapping[int, Reading]]"
) -> None:
    """Append the state of these GPUs to a file until this process ends.

    A failure stops the sampling and never the job.
    """

    def sample() -> None:
        write, began = LineAppender(str(path)).write, time.monotonic()
        with contextlib.suppress(Exception):
            while True:
                write(_format_line(time.time(), gpus, read()))
                pause = (time.monotonic() - began) * _SHARE_OF_ELAPSED
                time.sleep(min(max(pause, _MIN_SECONDS), _MAX_SECONDS))

    threading.Thread(target=sample, daemon=True).start()


def _format_line(at: float, gpus: Sequence[int], readings: "Mapping[int, Reading]") -> str:
    rows = {
        str(gpu): [reading.utilization, reading.memory_used_bytes, reading.power_watts]
        for gpu in gpus
        if (reading := readings.get(gpu)) is not None
    }
    return json.dumps({"at": round(at, 1), "gpus": rows}) + "\n"


def read_samples(path: Path) -> list[GpuSample]:
    """Read a file of samples, none if there is no file; broken lines are skipped, because the job may write there."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return []
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return []
        lines = file.read(_MAX_BYTES).split(b"\n")
    return [sample for line in lines for sample in _parse_line(line)]


def _parse_line(line: bytes) -> list[GpuSample]:
    try:
        row = json.loads(line)
        at = _check_number(row["at"])
        if at is None:
            return []
        return [
            GpuSample(at, str(int(gpu)), *map(_check_number, values[:3]))
            for gpu, values in list(row["gpus"].items())[:_MAX_GPUS]
        ]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return []


def _check_number(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("not a number")
    if not 0 <= value <= _MAX_NUMBER:
        raise ValueError("out of range")
    return float(value)


def samples_of_ranks(windows: "Sequence[RankWindow]") -> list[GpuSample]:
    """Return what the ranks of a training report about their GPUs."""
    several = len({window.host for window in windows}) > 1
    return [
        GpuSample(
            window.at,
            f"{window.host} {window.gpu}" if several else str(window.gpu),
            window.gpu_utilization,
            window.gpu_memory_bytes,
            window.gpu_watts,
        )
        for window in windows
        if window.gpu is not None
        and (window.gpu_utilization, window.gpu_memory_bytes, window.gpu_watts) != (None,) * 3
    ]
