"""Reads what every rank of a training reports about its steps, from report files or from any log with the lines."""

import json
import stat
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.reporting.reporter import MARKER, RANK_MARKER, RANKS_SUFFIX
from gpuyard.reporting.windows import MAX_WINDOWS, read_short_lines

_MAX_LINE = 20_000
_MAX_SECONDS = 1e9
_MAX_RANKS = 200_000
_MAX_NAME = 200
_MAX_GPUS = 64
_RANK_BYTES = 16_000  # read per rank: some twenty reports, of which a verdict needs eight
_MIN_BYTES, _MAX_BYTES = 4_000_000, 64_000_000  # of the newest reports of the other ranks


@dataclass(frozen=True)
class SentBytes:
    """TCP from one address to another: the bytes, the seconds with data on its way, and the packets sent again."""

    sender: str
    receiver: str
    sent_bytes: int
    seconds: float
    retransmits: int


@dataclass(frozen=True)
class RankWindow:
    """Consecutive steps of one rank. Seconds are those of one step; None if the loop does not time the phase."""

    rank: int
    at: float
    steps: int
    step_seconds: float
    compute_seconds: float
    input_seconds: float | None = None
    exchange_seconds: float | None = None
    cpu_wait: float = 0.0
    host: str = ""
    gpu: int | None = None
    samples: float = 0.0  # of all ranks together; only rank 0 knows it
    warmup: bool = False
    workers: int = 0  # processes of the whole training; 0 if unknown
    gpus: int = 0  # of the whole training, as rank 0 reports them; 0 for other ranks
    products: tuple[str, ...] = ()  # names of the GPUs in rank 0's machine, in its first line only
    links: tuple[SentBytes, ...] = ()
    cards: Mapping[str, float] = field(default_factory=dict, hash=False)  # bits per second
    load_per_core: float | None = None
    clock_mhz: float | None = None
    max_clock_mhz: float | None = None
    clock_reasons: tuple[str, ...] = ()
    gpu_processes: int | None = None
    gpu_utilization: float | None = None
    gpu_memory_bytes: float | None = None
    gpu_watts: float | None = None


def parse_rank_windows(lines: Iterable[str]) -> list[RankWindow]:
    """Return the newest reports of rank 0 and of the other ranks in the order of time; broken lines are skipped."""
    first: deque[RankWindow] = deque(maxlen=MAX_WINDOWS)
    others: deque[RankWindow] = deque(maxlen=MAX_WINDOWS)
    for line in lines:
        if (window := _parse_line(line)) is not None:
            (others if window.rank else first).append(window)
    return _sort([*first, *others])


def read_rank_log(path: Path) -> list[RankWindow]:
    """Read all reports of a log, and of the file of the other ranks next to it, in the order of time."""
    windows = _read_file(path)
    if windows is None:
        raise UserMistake(f"{path} not found")
    return _sort(windows + _read_other_ranks(path, windows))


def read_rank_files(steps: Path, log: Path) -> list[RankWindow]:
    """Read the reports of one start: its report files, and its output; none of them need exist."""
    windows = [*(_read_file(steps) or []), *(_read_file(log, _MAX_BYTES) or [])]
    return _sort(windows + _read_other_ranks(steps, windows))


def _read_other_ranks(path: Path, windows: Iterable[RankWindow]) -> list[RankWindow]:
    """Read the newest reports of the other ranks: those of hundreds of ranks and days would take minutes."""
    workers = max((window.workers for window in windows), default=0)
    budget = min(max(_MIN_BYTES, workers * _RANK_BYTES), _MAX_BYTES)
    return _read_file(path.with_name(path.name + RANKS_SUFFIX), budget) or []


def _sort(windows: list[RankWindow]) -> list[RankWindow]:
    return sorted(windows, key=lambda window: window.at)


def _read_file(path: Path, max_bytes: int | None = None) -> list[RankWindow] | None:
    """Return the reports in the last bytes, or None if there is no file; anything but a regular file is refused."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise UserMistake(f"{path} is not a regular file")
        with path.open("rb") as file:
            size = path.stat().st_size
            if max_bytes is not None and size > max_bytes:
                file.seek(size - max_bytes)
            return parse_rank_windows(read_short_lines(file))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise GpuyardError(f"{path} cannot be read: {error.strerror}") from None


def _parse_line(line: str) -> RankWindow | None:
    if len(line) > _MAX_LINE:
        return None
    marker = RANK_MARKER if RANK_MARKER in line else MARKER
    _, separator, text = line.partition(marker)
    if not separator:
        return None
    try:
        report = json.loads(text)
        return _build(report) if isinstance(report, dict) else None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        return None


def _build(report: dict[str, Any]) -> RankWindow:
    gpu, processes = report.get("gpu"), report.get("gpu_processes")
    compute = _seconds(report.get("compute_seconds"))
    step = _seconds(report["step_seconds"])
    if step is None or step <= 0:
        raise ValueError("the time must be above 0")
    return RankWindow(
        rank=_integer(report.get("rank", 0)),
        at=_seconds(report.get("at"), maximum=1e11) or 0.0,
        steps=max(1, _integer(report["steps"], maximum=1e12)),
        step_seconds=step,
        compute_seconds=step if compute is None else compute,
        input_seconds=_seconds(report.get("input_seconds")),
        exchange_seconds=_seconds(report.get("exchange_seconds")),
        cpu_wait=min(1.0, _seconds(report.get("cpu_wait")) or 0.0),
        host=_clean(str(report.get("host", ""))),
        gpu=None if gpu is None else _integer(gpu),
        samples=_seconds(report.get("samples"), maximum=1e15) or 0.0,
        warmup=report.get("warmup") is True,
        workers=_integer(report.get("workers", 0)),
        gpus=_integer(report.get("gpus", 0)),
        products=_read_products(report.get("testbed")),
        links=tuple(_read_link(link) for link in _read_list(report.get("links"))),
        cards={
            _clean(str(name)): _seconds(speed, maximum=1e15) or 0.0
            for name, speed in list((report.get("cards") or {}).items())[:_MAX_GPUS]
        },
        load_per_core=_seconds(report.get("load_per_core")),
        clock_mhz=_seconds(report.get("clock_mhz")),
        max_clock_mhz=_seconds(report.get("max_clock_mhz")),
        clock_reasons=tuple(_clean(str(name)) for name in _read_list(report.get("clock_reasons"))),
        gpu_processes=None if processes is None else _integer(processes),
        gpu_utilization=_seconds(report.get("gpu_utilization"), maximum=1.0),
        gpu_memory_bytes=_seconds(report.get("gpu_memory_bytes"), maximum=1e15),
        gpu_watts=_seconds(report.get("gpu_watts")),
    )


def _read_link(link: Any) -> SentBytes:
    seconds = _seconds(link["seconds"])
    if not seconds:
        raise ValueError("the time must be above 0")
    return SentBytes(
        _clean(str(link["from"])),
        _clean(str(link["to"])),
        _integer(link["bytes"], maximum=1e18),
        seconds,
        _integer(link["retransmits"], maximum=1e15),
    )


def _read_list(values: Any) -> list[Any]:
    return values[:_MAX_GPUS] if isinstance(values, list) else []


def _read_products(testbed: Any) -> tuple[str, ...]:
    names = _read_list(testbed.get("gpus") if isinstance(testbed, dict) else None)
    return tuple(_clean(name) for name in names if isinstance(name, str))


def _clean(text: str) -> str:
    return "".join(c for c in text[:_MAX_NAME] if c.isprintable())


def _seconds(value: Any, maximum: float = _MAX_SECONDS) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("not a number")
    if not 0 <= value <= maximum:
        raise ValueError("out of range")
    return float(value)


def _integer(value: Any, maximum: float = _MAX_RANKS) -> int:
    number = _seconds(value, maximum)
    if number is None or number != int(number):
        raise ValueError("not a count")
    return int(number)
