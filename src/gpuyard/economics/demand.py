"""How many GPUs are wanted when: from a table, from Slurm's accounting, or a load in words."""

import contextlib
import csv
import datetime
import io
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gpuyard.economics.billing import Array
from gpuyard.errors import UserMistake, quoted

if TYPE_CHECKING:
    from gpuyard.specs.offers import Load

_COLUMNS = ("gpus", "gpu_hours")
_TIMES = ("time", "hour", "day", "date", "timestamp")
_WEEK_HOURS = 7 * 24
_BURST_HOURS = 12
_MOST_GPUS = 1e9  # beyond this a number is a slip
_MOST_ROWS = 1_000_000  # more than a century by the hour
_MOST_DIGITS = 10
_LONGEST_LINE = 10_000  # characters
_EARLIEST, _LATEST = 0.0, 4_102_444_800.0  # seconds: 1970 to 2099; none of Slurm's jobs was before
# "gres/gpu=8" or, where only the typed count is kept, "gres/gpu:a100=8"
_GPUS = re.compile(r"(?:^|,)gres/gpu(:[^=,]+)?=(\d+)")
_NEEDED = ("Start", "End", "AllocTRES")
_TIME = re.compile(
    r"[0-9]{4}(-[0-9]{2}){0,2}([T ][0-9:.+-]{2,30}Z?)?"
)  # a year, a month, a day, or more
_SLURMS_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}")
_UNKNOWN = {"", "Unknown", "None"}


@dataclass(frozen=True)
class Demand:
    """GPUs wanted in each of many periods of equal length."""

    gpus: Array  # mean over the period
    hours_each: float
    source: str

    @property
    def hours(self) -> float:
        return self.hours_each * self.gpus.size

    @property
    def gpu_hours(self) -> float:
        return float(self.gpus.sum()) * self.hours_each

    def times(self, factor: float) -> "Demand":
        return Demand(self.gpus * factor, self.hours_each, self.source)


def demand_of(gpus: Array, hours_each: float, source: str) -> Demand:
    """The same, checked."""
    if gpus.size == 0:
        raise UserMistake(f"{source}: there is no demand in it")
    if not hours_each > 0:
        raise UserMistake(f"{source}: a period of demand must be longer than zero hours")
    wrong = ~(np.isfinite(gpus) & (gpus >= 0))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise UserMistake(f"{source}: row {row + 1} has {gpus[row]:g} GPUs: expected zero or more")
    if gpus.max() > _MOST_GPUS:
        row = int(np.argmax(gpus))
        raise UserMistake(
            f"{source}: row {row + 1} has {gpus[row]:g} GPUs: expected a billion or less"
        )
    return Demand(gpus, hours_each, source)


def demand_from_csv(text: str, name: str, hours_each: float | None = None) -> Demand:
    """A table with a column `gpus` (how many at that time) or `gpu_hours` (used in that period).

    The length of a period comes from the first two times (`time`, ISO 8601), unless it is given.
    """
    lines = _lines(text, name)
    header = next(_cells(lines[:1], name), [])
    columns = [cell.strip().lower() for cell in header]
    wanted = [column for column in columns if column in _COLUMNS]
    if len(wanted) != 1:
        raise UserMistake(
            f"{name}:1: a table of demand has one column 'gpus' or 'gpu_hours'; "
            f"this one has: {', '.join(columns[:20]) or 'nothing'}"
        )
    at = columns.index(wanted[0])
    values = _column(lines, at, name)
    if hours_each is None:
        hours_each = _period_hours(lines, columns, name)
    gpus = values / hours_each if wanted[0] == "gpu_hours" and hours_each > 0 else values
    return demand_of(gpus, hours_each, name)


def described_demand(
    load: "Load",
    gpus: float,
    *,
    base_share: float = 0.1,
    busy_share: float = 0.05,
    seed: int = 0,
) -> Demand:
    """A year by the hour.

    `steady`: `gpus` always. `working-hours`: `gpus` from Monday to Friday 9 to 18, else `base_share` of
    them. `spiky`: `gpus` in bursts of 12 hours that fill `busy_share` of the year, else `base_share`.
    """
    if not gpus >= 0:
        raise UserMistake(f"expected zero GPUs or more, got {gpus:g}")
    for what, share in (("base", base_share), ("busy", busy_share)):
        if not 0 <= share <= 1:
            raise UserMistake(f"the {what} share must be between 0 % and 100 %")
    hours = 52 * _WEEK_HOURS
    clock = np.arange(hours)
    busy = np.ones(hours, dtype=bool)
    if load == "working-hours":
        day, hour = clock // 24 % 7, clock % 24
        busy = (day < 5) & (hour >= 9) & (hour < 18)
    elif load == "spiky":
        bursts = round(busy_share * hours / _BURST_HOURS)
        chosen = np.random.default_rng(seed).permutation(hours // _BURST_HOURS)[:bursts]
        busy = np.isin(clock // _BURST_HOURS, chosen)
    return demand_of(np.where(busy, gpus, gpus * base_share), 1.0, f"{load} demand")


def _lines(text: str, name: str) -> list[str]:
    lines = text.splitlines()
    if len(lines) - 1 > _MOST_ROWS:
        raise UserMistake(f"{name}: it has {len(lines) - 1:,} rows, {_MOST_ROWS:,} is the most")
    for number, line in enumerate(lines, 1):
        if len(line) > _LONGEST_LINE:
            raise UserMistake(f"{name}:{number}: longer than {_LONGEST_LINE:,} characters")
    return lines


def _cells(lines: Sequence[str], name: str, first: int = 1) -> Iterator[list[str]]:
    """The cells of each line, the first of which has this number."""
    rows = csv.reader(lines)
    try:
        yield from rows
    except csv.Error as error:
        raise UserMistake(f"{name}:{first + rows.line_num - 1}: this is not CSV: {error}") from None


def _column(lines: list[str], at: int, name: str) -> Array:
    if not any(line.strip() for line in lines[1:]):
        raise UserMistake(f"{name}: there is no demand in it, only its first line")
    try:
        return np.loadtxt(
            io.StringIO("\n".join(lines[1:])), delimiter=",", usecols=at, ndmin=1, quotechar='"'
        )
    except ValueError:
        pass
    for number, row in enumerate(_cells(lines[1:], name, 2), 2):
        try:
            float(row[at])
        except (IndexError, ValueError):
            cell = quoted(row[at]) if at < len(row) else "nothing"
            raise UserMistake(f"{name}:{number}: expected a number, got {cell}") from None
    raise UserMistake(f"{name}: there is no demand in it")


def _period_hours(lines: list[str], columns: list[str], name: str) -> float:
    times = [column for column in columns if column in _TIMES]
    rows = list(itertools.islice((row for row in _cells(lines[1:], name, 2) if row), 2))
    if not times or len(rows) < 2:
        raise UserMistake(
            f"{name}: without a column 'time' and two rows, say how long a row lasts: --every 'hour'"
        )
    at = columns.index(times[0])
    cells = [row[at].strip() if at < len(row) else "" for row in rows]
    seconds = []
    for number, cell in enumerate(cells, 2):
        if (moment := _moment(cell)) is None:
            raise UserMistake(
                f"{name}:{number}: {quoted(cell)} is not a time like '2026-01-31T09:00'"
            )
        seconds.append(moment)
    hours = (seconds[1] - seconds[0]) / 3600
    if not hours > 0:
        raise UserMistake(
            f"{name}:3: times must go up, but {cells[0]!r} is followed by {cells[1]!r}"
        )
    return hours


def _moment(text: str) -> float | None:
    """Seconds since 1970; None for what is no time, or one outside of what can be meant."""
    if not _TIME.fullmatch(text):
        return None
    whole = (
        text + "-01-01"[len(text) - len("2026-01-01") :] if len(text) < len("2026-01-01") else text
    )
    try:
        moment = datetime.datetime.fromisoformat(whole)
    except ValueError:
        return None
    seconds = (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()
    return seconds if _EARLIEST <= seconds <= _LATEST else None


def demand_from_sacct(text: str, name: str) -> Demand:
    """From `sacct -P -X -o JobID,Start,End,AllocTRES`: mean GPUs in use in each hour, first start to last end.

    Steps of a job ("12.batch") count with their job. Jobs without GPUs, and those that have not
    started or not ended, are left out.
    """
    lines = _lines(text, name)
    columns = lines[0].split("|") if lines else []
    missing = [column for column in _NEEDED if column not in columns]
    if missing:
        raise UserMistake(
            f"{name}:1: {', '.join(missing)} is not in the header; export with: "
            "sacct -P -X -o JobID,Start,End,AllocTRES"
        )
    start_at, end_at, tres_at = (columns.index(column) for column in _NEEDED)
    id_at = columns.index("JobID") if "JobID" in columns else None
    starts, ends, gpus, numbers = [], [], [], []
    for number, line in enumerate(lines[1:], 2):
        if not line:
            continue
        cells = line.split("|")
        if len(cells) < len(columns):
            raise UserMistake(
                f"{name}:{number}: expected {len(columns)} cells as in the header, got {len(cells)}"
            )
        if id_at is not None and "." in cells[id_at]:
            continue
        try:
            count = gpus_of(cells[tres_at])
        except UserMistake as mistake:
            raise UserMistake(f"{name}:{number}: {mistake}") from None
        if count == 0 or cells[start_at] in _UNKNOWN or cells[end_at] in _UNKNOWN:
            continue
        starts.append(cells[start_at])
        ends.append(cells[end_at])
        gpus.append(count)
        numbers.append(number)
    if not gpus:
        raise UserMistake(f"{name}: no job in it has ended and had GPUs (gres/gpu in AllocTRES)")
    first, last = _seconds(starts, numbers, name), _seconds(ends, numbers, name)
    if (first > last).any():
        wrong = numbers[int(np.argmax(first > last))]
        raise UserMistake(f"{name}:{wrong}: the job ends before it starts")
    return demand_by_hour(first, last, np.array(gpus, dtype=np.float64), name)


def demand_by_hour(starts: Array, ends: Array, gpus: Array, name: str) -> Demand:
    """Of jobs that held so many GPUs from when to when, in seconds."""
    return demand_of(_by_hour(starts, ends, gpus), 1.0, name)


def gpus_of(tres: str) -> int:
    """ "cpu=16,gres/gpu=8,gres/gpu:a100=8" → 8: the sum without types, else over the types."""
    found = _GPUS.findall(tres)
    if any(len(count) > _MOST_DIGITS for _, count in found):
        raise UserMistake(f"expected a billion GPUs or less, got {quoted(tres)}")
    plain = [int(count) for kind, count in found if not kind]
    return plain[0] if plain else sum(int(count) for _, count in found)


def _seconds(times: list[str], numbers: list[int], name: str) -> Array:
    if all(map(_SLURMS_TIME.fullmatch, times)):
        with contextlib.suppress(ValueError):  # there is no 99th of any month
            seconds = np.array(times, dtype="datetime64[s]").astype(np.float64)
            if seconds.min() >= _EARLIEST and seconds.max() <= _LATEST:
                return seconds
    found = [_moment(text) for text in times]
    if None in found:
        row = found.index(None)
        raise UserMistake(
            f"{name}:{numbers[row]}: {quoted(times[row])} is not a time like 2026-01-31T09:00:00"
        )
    return np.array(found, dtype=np.float64)


def _by_hour(starts: Array, ends: Array, gpus: Array) -> Array:
    """Mean load of each hour, as the difference of all GPU-seconds used before its two edges."""
    origin = np.floor(starts.min() / 3600) * 3600
    hours = max(1, int(np.ceil((ends.max() - origin) / 3600)))
    if hours > 100 * 8784:
        raise UserMistake("the jobs lie more than 100 years apart: one of their times is wrong")
    edges = origin + 3600 * np.arange(hours + 1, dtype=np.float64)
    used = _ramp(edges, starts, gpus, origin) - _ramp(edges, ends, gpus, origin)
    return np.maximum(np.diff(used) / 3600, 0.0)


def _ramp(edges: Array, times: Array, gpus: Array, origin: float) -> Array:
    """Σ gpus × max(edge − time, 0) for each edge."""
    order = np.argsort(times)
    sorted_times, weights = times[order] - origin, gpus[order]
    count = np.searchsorted(sorted_times, edges - origin, side="right")
    total = np.concatenate([[0.0], np.cumsum(weights)])
    moment = np.concatenate([[0.0], np.cumsum(weights * sorted_times)])
    return np.asarray(total[count] * (edges - origin) - moment[count])
