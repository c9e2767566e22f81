"""Reads what training loops report: from the file that a job's engine gave it, or out of all that it printed.

A job can write there what it likes: lines are bounded, each value is checked, and what is no report is left out.
"""

import json
import math
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.steps.reporter import MARKER

MOST_WINDOWS = 100_000
_LONGEST_LINE = 20_000  # characters; a report with a testbed of 64 GPUs has about 8,000
_MOST_BYTES = 8_000_000  # of one look
_LEAST, _MOST = 1e-12, 1e15
_LONGEST_TEXT = 200
_MOST_GPUS = 64
_COUNTS = ("cores", "memory_bytes", "threads_per_worker")
_TEXTS = ("gpuyard", "torch", "python", "os", "kernel", "host", "cpu_model")


@dataclass(frozen=True)
class StepWindow:
    """Some steps in a row, as one line says it."""

    steps: int
    samples: float
    seconds: float
    step_seconds: float
    """The median; the mean where the line has none."""
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

    @property
    def samples_per_second(self) -> float:
        """While it trained: what came between two steps is left out by the median."""
        return self.samples / self.steps / self.step_seconds


def window_of(line: str) -> StepWindow | None:
    """What a line reports; None: it is no report, or not one to believe."""
    _, marker, text = line.partition(MARKER)  # a launcher may put a rank before it
    if not marker or len(text) > _LONGEST_LINE:
        return None
    try:
        said = json.loads(text)
        return _window(said) if isinstance(said, dict) else None
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None


def windows_in(lines: Iterable[str]) -> Iterator[StepWindow]:
    """Those of a log, at most `MOST_WINDOWS`."""
    found = (window for line in lines if (window := window_of(line)) is not None)
    for _, window in zip(range(MOST_WINDOWS), found, strict=False):
        yield window


def lines_of(pieces: Iterable[str]) -> Iterator[str]:
    """Of text that comes in pieces; of a line that is too long for a report only its end."""
    rest = ""
    for piece in pieces:
        *whole, rest = (rest + piece).split("\n")
        yield from whole
        rest = rest[-2 * _LONGEST_LINE :]
    if rest:
        yield rest


@dataclass
class StepsFile:
    """A file that grows; each look reads what came since the last."""

    path: Path
    offset: int = 0

    def read(self) -> list[StepWindow]:
        """The new ones, none where there is no file yet; a line that is not whole comes next time."""
        try:
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(self.path, flags)
        except OSError:  # the job has not begun, or put something else there
            return []
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return []
            content = os.pread(descriptor, _MOST_BYTES, self.offset)
        finally:
            os.close(descriptor)
        whole = content.rfind(b"\n") + 1
        if not whole and len(content) > _LONGEST_LINE:
            whole = len(content)  # no report is so long
        self.offset += whole
        return list(windows_in(content[:whole].decode(errors="replace").split("\n")))


def read_log(path: Path) -> list[StepWindow]:
    """All reports in what a job printed, or in the file that it was given; a sentence where it can't be read."""
    try:
        with path.open("rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UserMistake(f"{path}: this is not a file")
            return list(windows_in(_lines(file)))
    except FileNotFoundError:
        raise UserMistake(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise UserMistake(f"{path}: this is a directory, not a file") from None
    except OSError as error:
        raise GpuyardError(f"{path}: can't be read: {error.strerror}") from None


def _lines(file: Any) -> Iterator[str]:
    """Of a log of any size, without holding more of it than one line that could be a report."""
    inside = False  # of a line that is too long
    while piece := file.readline(_LONGEST_LINE):
        ends = piece.endswith(b"\n")
        if ends and not inside:
            yield piece.decode(errors="replace")
        inside = not ends


def _window(said: dict[str, Any]) -> StepWindow:
    steps = _whole(said["steps"], least=1)
    seconds = _number(said["seconds"])
    mean = seconds / steps
    median = said.get("step_seconds")
    step_seconds = mean if median is None else _number(median)
    if step_seconds <= 0 or seconds <= 0:
        raise ValueError("no time went by")
    gpus = _whole(said.get("gpus", 1), least=1)
    return StepWindow(
        steps=steps,
        samples=_number(said["samples"]),
        seconds=seconds,
        step_seconds=step_seconds,
        warmup=said.get("warmup") is True,
        start=_text(said.get("start", "")),
        job=_text(said.get("job", "")),
        at=_optional(said.get("at"), _number),
        gpus=gpus,
        nodes=_whole(said.get("nodes", 1), least=1),
        workers=_whole(said.get("workers", gpus), least=1),
        steps_done=_optional(said.get("steps_done"), _whole),
        samples_done=_optional(said.get("samples_done"), _number),
        number=_optional(said.get("number"), _whole),
        total=_optional(said.get("total"), _whole),
        loss=_loss(said.get("loss")),
        testbed=_testbed(said.get("testbed")),
    )


def _optional(value: Any, read: Any) -> Any:
    return None if value is None else read(value)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("not a number")
    number = float(value)
    if not 0 <= number <= _MOST:  # nor is nan
        raise ValueError("out of range")
    return number if number >= _LEAST else 0.0


def _whole(value: Any, least: int = 0) -> int:
    number = _number(value)
    if number != int(number) or number < least:
        raise ValueError("not a count")
    return int(number)


def _loss(value: Any) -> float | None:
    if value is None or isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not text")
    return "".join(c for c in value[:_LONGEST_TEXT] if c.isprintable())


def _testbed(said: Any) -> dict[str, Any] | None:
    """What the process says of its machine, with every key, or None."""
    if not isinstance(said, dict):
        return None
    gpus = said.get("gpus", [])
    if not isinstance(gpus, list):
        return None
    return {
        **{name: _text(said.get(name, "")) or "unknown" for name in _TEXTS},
        **{name: _whole(said.get(name, 0)) for name in _COUNTS},
        "gpus": tuple(_text(gpu) for gpu in gpus[:_MOST_GPUS]),
    }
