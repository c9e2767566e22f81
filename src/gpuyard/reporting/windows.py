"""Reads the reports of training loops from the file that a job's engine provides, or from the job's output.

A job can write anything there, so lines are bounded, each value is checked, and lines that are not reports are skipped.
"""

import itertools
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.reporting.reporter import MARKER

Number = TypeVar("Number", int, float)

MAX_WINDOWS = 100_000
_MAX_LINE = 20_000  # characters; a report with a testbed of 64 GPUs has about 8,000
_MAX_BYTES = 8_000_000  # per read
TAIL_BYTES = 256_000
"""Enough for the reports of hours, and read in milliseconds."""
_LOSS_WINDOWS = 5  # averaged, because the loss of one window is noisy
_MIN_NUMBER, _MAX_NUMBER = 1e-12, 1e15
_MAX_PROCESSES = 200_000  # GPUs, nodes, or workers: as many as the largest clusters have
_LATEST_TIME = 32_503_680_000.0  # the year 3000; later times cannot be formatted
_MAX_TEXT = 200
_MAX_GPUS = 64
_COUNT_KEYS = ("cores", "memory_bytes", "threads_per_worker")
_TEXT_KEYS = ("gpuyard", "torch", "python", "os", "kernel", "host", "cpu_model")


@dataclass(frozen=True)
class StepWindow:
    """Consecutive steps as one line reports them."""

    steps: int
    samples: float
    seconds: float
    step_seconds: float
    """The median, or the mean if the line has no median."""
    warmup: bool = False
    start: str = ""
    job: str = ""
    at: float | None = None
    gpus: int = 1
    nodes: int = 1
    workers: int = 1
    steps_done: int | None = None
    samples_done: float | None = None
    number: int | None = None
    total: int | None = None
    loss: float | None = None
    testbed: dict[str, Any] | None = field(default=None, hash=False)
    checkpoints: int = 0
    checkpoint_seconds: float = 0.0
    startup_seconds: float | None = None

    @property
    def samples_per_second(self) -> float:
        """The rate while training; the median excludes pauses between steps."""
        return self.samples / self.steps / self.step_seconds


def parse_window(line: str) -> StepWindow | None:
    """Return the report of a line, or None if it is not a valid report."""
    _, marker, text = line.partition(MARKER)  # a launcher may write the rank before it
    if not marker or len(text) > _MAX_LINE:
        return None
    try:
        report = json.loads(text)
        return _build_window(report) if isinstance(report, dict) else None
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None


def parse_windows(lines: Iterable[str]) -> Iterator[StepWindow]:
    """Yield the reports in a log, at most `MAX_WINDOWS`."""
    windows = (window for line in lines if (window := parse_window(line)) is not None)
    return itertools.islice(windows, MAX_WINDOWS)


def split_lines(chunks: Iterable[str]) -> Iterator[str]:
    """Split text that comes in chunks; only the end of a line that is too long for a report is kept."""
    partial_line = ""
    for chunk in chunks:
        *lines, partial_line = (partial_line + chunk).split("\n")
        yield from lines
        partial_line = partial_line[-2 * _MAX_LINE :]
    if partial_line:
        yield partial_line


def latest_loss(windows: Sequence[StepWindow]) -> float | None:
    """Return the mean of the last losses; None if there are none or the last is not a number (it diverged)."""
    if not windows or windows[-1].loss is None:
        return None
    last = [window.loss for window in windows[-_LOSS_WINDOWS:] if window.loss is not None]
    return sum(last) / len(last)


@dataclass
class StepsFile:
    """A growing report file; each read returns what was added since the last one."""

    path: Path
    offset: int = 0

    @classmethod
    def open_tail(cls, path: Path) -> "StepsFile":
        """Begin near the end, wherever a line begins there, so that a long file takes no longer than a short one."""
        try:
            size = os.lstat(path).st_size  # a link is not followed
        except OSError:
            size = 0
        return cls(path, max(0, size - TAIL_BYTES))

    def read(self) -> list[StepWindow]:
        """Return the new windows, none if there is no file yet; an incomplete line waits for the next read."""
        try:
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(self.path, flags)
        except OSError:  # the job has not started, or replaced the file
            return []
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return []
            content = os.pread(descriptor, _MAX_BYTES, self.offset)
        finally:
            os.close(descriptor)
        complete_bytes = content.rfind(b"\n") + 1
        if not complete_bytes and len(content) > _MAX_LINE:
            complete_bytes = len(content)  # too long for a report, so it is skipped
        self.offset += complete_bytes
        if content.find(MARKER.encode(), 0, complete_bytes) < 0:
            return []  # a long output without reports is skipped without splitting it
        lines = content[:complete_bytes].decode(errors="replace").split("\n")
        return list(parse_windows(lines))


def read_log(path: Path) -> list[StepWindow]:
    """Return all reports in a job's output or report file; raise an error if it cannot be read."""
    try:
        with path.open("rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UserMistake(f"{path} is not a regular file")
            return list(parse_windows(read_short_lines(file)))
    except FileNotFoundError:
        raise UserMistake(f"{path} not found") from None
    except IsADirectoryError:
        raise UserMistake(f"{path} is a directory, not a file") from None
    except OSError as error:
        raise GpuyardError(f"{path} cannot be read: {error.strerror}") from None


def read_short_lines(file: Any) -> Iterator[str]:
    """Yield the lines that are short enough for a report, and hold at most one of them in memory."""
    inside_long_line = False
    while chunk := file.readline(_MAX_LINE):
        ends_line = chunk.endswith(b"\n")
        if ends_line and not inside_long_line:
            yield chunk.decode(errors="replace")
        inside_long_line = not ends_line


def _build_window(report: dict[str, Any]) -> StepWindow:
    steps = _parse_integer(report["steps"], minimum=1)
    seconds = _parse_number(report["seconds"])
    mean = seconds / steps
    median = report.get("step_seconds")
    step_seconds = mean if median is None else _parse_number(median)
    if step_seconds <= 0 or seconds <= 0:
        raise ValueError("the time must be above 0")
    gpus = _parse_processes(report.get("gpus", 1))
    return StepWindow(
        steps=steps,
        samples=_parse_number(report["samples"]),
        seconds=seconds,
        step_seconds=step_seconds,
        warmup=report.get("warmup") is True,
        start=_parse_text(report.get("start", "")),
        job=_parse_text(report.get("job", "")),
        at=_parse_optional(report.get("at"), _parse_time),
        gpus=gpus,
        nodes=_parse_processes(report.get("nodes", 1)),
        workers=_parse_processes(report.get("workers", gpus)),
        steps_done=_parse_optional(report.get("steps_done"), _parse_integer),
        samples_done=_parse_optional(report.get("samples_done"), _parse_number),
        number=_parse_optional(report.get("number"), _parse_integer),
        total=_parse_optional(report.get("total"), _parse_integer),
        loss=_parse_loss(report.get("loss")),
        testbed=_parse_testbed(report.get("testbed")),
        checkpoints=_parse_integer(report.get("checkpoints", 0)),
        checkpoint_seconds=_parse_number(report.get("checkpoint_seconds", 0)),
        startup_seconds=_parse_optional(report.get("startup_seconds"), _parse_number),
    )


def _parse_optional(value: Any, parse: Callable[[Any], Number]) -> Number | None:
    return None if value is None else parse(value)


def _parse_number(value: Any, maximum: float = _MAX_NUMBER) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("not a number")
    number = float(value)
    if not 0 <= number <= maximum:  # also false for NaN
        raise ValueError("out of range")
    return number if number >= _MIN_NUMBER else 0.0


def _parse_time(value: Any) -> float:
    return _parse_number(value, _LATEST_TIME)


def _parse_integer(value: Any, minimum: int = 0, maximum: float = _MAX_NUMBER) -> int:
    number = _parse_number(value, maximum)
    if number != int(number) or number < minimum:
        raise ValueError("not a count")
    return int(number)


def _parse_processes(value: Any) -> int:
    return _parse_integer(value, minimum=1, maximum=_MAX_PROCESSES)


def _parse_loss(value: Any) -> float | None:
    """Return None for a loss that has diverged: sums of larger numbers would not be finite."""
    if value is None or isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= _MAX_NUMBER else None


def median_checkpoint_seconds(windows: Sequence[StepWindow]) -> float | None:
    """Return the time of one checkpoint; None if none was reported."""
    seconds = [w.checkpoint_seconds / w.checkpoints for w in windows if w.checkpoints]
    return median(seconds) if seconds else None


def median_startup_seconds(windows: Sequence[StepWindow]) -> float | None:
    """Return the time from the start of a process to its first step; None if none was reported."""
    seconds = [w.startup_seconds for w in windows if w.startup_seconds is not None]
    return median(seconds) if seconds else None


def _parse_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not text")
    return "".join(c for c in value[:_MAX_TEXT] if c.isprintable())


def _parse_testbed(value: Any) -> dict[str, Any] | None:
    """Return the reported machine with every key present, or None if there is none."""
    if not isinstance(value, dict):
        return None
    gpus = value.get("gpus", [])
    if not isinstance(gpus, list):
        return None
    return {
        **{name: _parse_text(value.get(name, "")) or "unknown" for name in _TEXT_KEYS},
        **{name: _parse_integer(value.get(name, 0)) for name in _COUNT_KEYS},
        "gpus": tuple(_parse_text(gpu) for gpu in gpus[:_MAX_GPUS]),
    }
