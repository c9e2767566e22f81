"""GPU demand over time, from a table, from Slurm's accounting, or from a named load."""

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
from gpuyard.errors import UserMistake, quote

if TYPE_CHECKING:
    from gpuyard.choices import Load

_COLUMNS = ("gpus", "gpu_hours")
_TIMES = ("time", "hour", "day", "date", "timestamp")
_WEEK_HOURS = 7 * 24
_BURST_HOURS = 12
_MAX_GPUS = 1e9  # a larger number is a mistake
_MAX_ROWS = 1_000_000  # more than a century of hours
_MAX_DIGITS = 10
_MAX_LINE = 10_000  # characters
_EARLIEST, _LATEST = 0.0, 4_102_444_800.0  # seconds: 1970 to 2099
# "gres/gpu=8" or, if only the typed count is kept, "gres/gpu:a100=8"
_GPUS = re.compile(r"(?:^|,)gres/gpu(:[^=,]+)?=(\d+)")
_REQUIRED_COLUMNS = ("Start", "End", "AllocTRES")
_TIME = re.compile(
    r"[0-9]{4}(-[0-9]{2}){0,2}([T ][0-9:.+-]{2,30}Z?)?"
)  # a year, a month, a day, or more
_SLURM_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}")
_UNKNOWN = {"", "Unknown", "None"}


@dataclass(frozen=True)
class Demand:
    """The demand for GPUs in each of many periods of equal length."""

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


def create_demand(gpus: Array, hours_each: float, source: str) -> Demand:
    """Check the values and return the demand."""
    if gpus.size == 0:
        raise UserMistake(f"{source}: it contains no demand")
    if not hours_each > 0:
        raise UserMistake(f"{source}: a period of demand must be longer than zero hours")
    wrong = ~(np.isfinite(gpus) & (gpus >= 0))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise UserMistake(f"{source}: row {row + 1} has {gpus[row]:g} GPUs; expected zero or more")
    if gpus.max() > _MAX_GPUS:
        row = int(np.argmax(gpus))
        raise UserMistake(
            f"{source}: row {row + 1} has {gpus[row]:g} GPUs; expected a billion or less"
        )
    return Demand(gpus, hours_each, source)


def demand_from_csv(text: str, name: str, hours_each: float | None = None) -> Demand:
    """Read a table with a column `gpus` (number at that time) or `gpu_hours` (used in that period).

    Unless given, the length of a period comes from the first two times (`time`, ISO 8601).
    """
    lines = _split_lines(text, name)
    header = next(_read_cells(lines[:1], name), [])
    columns = [cell.strip().lower() for cell in header]
    value_columns = [column for column in columns if column in _COLUMNS]
    if len(value_columns) != 1:
        raise UserMistake(
            f"{name}:1: a demand table must have one column 'gpus' or 'gpu_hours'; "
            f"this one has: {', '.join(columns[:20]) or 'nothing'}"
        )
    (column,) = value_columns
    values = _read_column(lines, columns.index(column), name)
    if hours_each is None:
        hours_each = _period_hours(lines, columns, name)
    gpus = values / hours_each if column == "gpu_hours" and hours_each > 0 else values
    return create_demand(gpus, hours_each, name)


def demand_from_load(
    load: "Load",
    gpus: float,
    *,
    base_share: float = 0.1,
    busy_share: float = 0.05,
    seed: int = 0,
) -> Demand:
    """Return the hourly demand of a year for a named load.

    `steady` always needs `gpus`. `working-hours` needs `gpus` from Monday to Friday 9 to 18, and otherwise
    `base_share` of them. `spiky` needs `gpus` in bursts of 12 hours that fill `busy_share` of the year, and
    otherwise `base_share` of them.
    """
    if not gpus >= 0:
        raise UserMistake(f"expected zero GPUs or more, got {gpus:g}")
    for what, share in (("base", base_share), ("busy", busy_share)):
        if not 0 <= share <= 1:
            raise UserMistake(f"the {what} share must be between 0% and 100%")
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
    return create_demand(np.where(busy, gpus, gpus * base_share), 1.0, f"{load} demand")


def _split_lines(text: str, name: str) -> list[str]:
    lines = text.splitlines()
    if len(lines) - 1 > _MAX_ROWS:
        raise UserMistake(f"{name}: it has {len(lines) - 1:,} rows; the limit is {_MAX_ROWS:,}")
    for number, line in enumerate(lines, 1):
        if len(line) > _MAX_LINE:
            raise UserMistake(f"{name}:{number}: longer than {_MAX_LINE:,} characters")
    return lines


def _read_cells(lines: Sequence[str], name: str, first: int = 1) -> Iterator[list[str]]:
    """Yield the cells of each line; `first` is the number of the first line in the file."""
    rows = csv.reader(lines)
    try:
        yield from rows
    except csv.Error as error:
        raise UserMistake(f"{name}:{first + rows.line_num - 1}: invalid CSV: {error}") from None


def _read_column(lines: list[str], index: int, name: str) -> Array:
    if not any(line.strip() for line in lines[1:]):
        raise UserMistake(f"{name}: it contains no demand, only a header")
    try:
        return np.loadtxt(
            io.StringIO("\n".join(lines[1:])), delimiter=",", usecols=index, ndmin=1, quotechar='"'
        )
    except ValueError:
        pass
    for number, row in enumerate(_read_cells(lines[1:], name, 2), 2):
        try:
            float(row[index])
        except (IndexError, ValueError):
            cell = quote(row[index]) if index < len(row) else "nothing"
            raise UserMistake(f"{name}:{number}: expected a number, got {cell}") from None
    raise UserMistake(f"{name}: it contains no demand")


def _period_hours(lines: list[str], columns: list[str], name: str) -> float:
    time_columns = [column for column in columns if column in _TIMES]
    rows = list(itertools.islice((row for row in _read_cells(lines[1:], name, 2) if row), 2))
    if not time_columns or len(rows) < 2:
        raise UserMistake(
            f"{name}: without a column 'time' and two rows, give the length of a row: --row-period 'hour'"
        )
    index = columns.index(time_columns[0])
    cells = [row[index].strip() if index < len(row) else "" for row in rows]
    times = []
    for number, cell in enumerate(cells, 2):
        if (seconds := _parse_time(cell)) is None:
            raise UserMistake(
                f"{name}:{number}: {quote(cell)} is not a time like '2026-01-31T09:00'"
            )
        times.append(seconds)
    hours = (times[1] - times[0]) / 3600
    if not hours > 0:
        raise UserMistake(f"{name}:3: times must increase, but {cells[1]!r} follows {cells[0]!r}")
    return hours


def _parse_time(text: str) -> float | None:
    """Return seconds since 1970, or None if the text is not a time in a sensible range."""
    if not _TIME.fullmatch(text):
        return None
    full = (
        text + "-01-01"[len(text) - len("2026-01-01") :] if len(text) < len("2026-01-01") else text
    )
    try:
        time = datetime.datetime.fromisoformat(full)
    except ValueError:
        return None
    seconds = (time if time.tzinfo else time.replace(tzinfo=datetime.UTC)).timestamp()
    return seconds if _EARLIEST <= seconds <= _LATEST else None


def demand_from_sacct(text: str, name: str) -> Demand:
    """Return the mean GPUs in use per hour from `sacct -P -X -o JobID,Start,End,AllocTRES`.

    It covers the first start to the last end. Job steps ("12.batch"), jobs without GPUs, and jobs that have not
    started or ended are skipped.
    """
    lines = _split_lines(text, name)
    columns = lines[0].split("|") if lines else []
    missing = [column for column in _REQUIRED_COLUMNS if column not in columns]
    if missing:
        raise UserMistake(
            f"{name}:1: {', '.join(missing)} not found in the header; export with: "
            "sacct -P -X -o JobID,Start,End,AllocTRES"
        )
    start_at, end_at, tres_at = (columns.index(column) for column in _REQUIRED_COLUMNS)
    id_at = columns.index("JobID") if "JobID" in columns else None
    starts, ends, gpus, numbers = [], [], [], []
    for number, line in enumerate(lines[1:], 2):
        if not line:
            continue
        cells = line.split("|")
        if len(cells) < len(columns):
            raise UserMistake(
                f"{name}:{number}: expected {len(columns)} cells like the header, got {len(cells)}"
            )
        if id_at is not None and "." in cells[id_at]:
            continue
        try:
            count = count_gpus(cells[tres_at])
        except UserMistake as mistake:
            raise UserMistake(f"{name}:{number}: {mistake}") from None
        if count == 0 or cells[start_at] in _UNKNOWN or cells[end_at] in _UNKNOWN:
            continue
        starts.append(cells[start_at])
        ends.append(cells[end_at])
        gpus.append(count)
        numbers.append(number)
    if not gpus:
        raise UserMistake(f"{name}: no finished job has GPUs (gres/gpu in AllocTRES)")
    first, last = _parse_times(starts, numbers, name), _parse_times(ends, numbers, name)
    if (first > last).any():
        wrong = numbers[int(np.argmax(first > last))]
        raise UserMistake(f"{name}:{wrong}: the job ends before it starts")
    return demand_by_hour(first, last, np.array(gpus, dtype=np.float64), name)


def demand_by_hour(starts: Array, ends: Array, gpus: Array, name: str) -> Demand:
    """Return the hourly demand of jobs with these start and end times in seconds."""
    return create_demand(_mean_by_hour(starts, ends, gpus), 1.0, name)


def count_gpus(tres: str) -> int:
    """Count the GPUs in "cpu=16,gres/gpu=8,gres/gpu:a100=8": the untyped count, or the sum over types."""
    counts = _GPUS.findall(tres)
    if any(len(count) > _MAX_DIGITS for _, count in counts):
        raise UserMistake(f"expected a billion GPUs or less, got {quote(tres)}")
    untyped = [int(count) for gpu_type, count in counts if not gpu_type]
    return untyped[0] if untyped else sum(int(count) for _, count in counts)


def _parse_times(times: list[str], numbers: list[int], name: str) -> Array:
    if all(map(_SLURM_TIME.fullmatch, times)):
        with contextlib.suppress(ValueError):  # for example the 99th of a month
            seconds = np.array(times, dtype="datetime64[s]").astype(np.float64)
            if seconds.min() >= _EARLIEST and seconds.max() <= _LATEST:
                return seconds
    parsed = [_parse_time(text) for text in times]
    if None in parsed:
        row = parsed.index(None)
        raise UserMistake(
            f"{name}:{numbers[row]}: {quote(times[row])} is not a time like 2026-01-31T09:00:00"
        )
    return np.array(parsed, dtype=np.float64)


def _mean_by_hour(starts: Array, ends: Array, gpus: Array) -> Array:
    """Return the mean load of each hour: the difference of the GPU-seconds before its two edges."""
    origin = np.floor(starts.min() / 3600) * 3600
    hours = max(1, int(np.ceil((ends.max() - origin) / 3600)))
    if hours > 100 * 8784:
        raise UserMistake("the jobs span more than 100 years; one of their times is wrong")
    edges = origin + 3600 * np.arange(hours + 1, dtype=np.float64)
    used = _ramp(edges, starts, gpus, origin) - _ramp(edges, ends, gpus, origin)
    return np.maximum(np.diff(used) / 3600, 0.0)


def _ramp(edges: Array, times: Array, gpus: Array, origin: float) -> Array:
    """Return Σ gpus × max(edge − time, 0) for each edge."""
    order = np.argsort(times)
    sorted_times, weights = times[order] - origin, gpus[order]
    count = np.searchsorted(sorted_times, edges - origin, side="right")
    total = np.concatenate([[0.0], np.cumsum(weights)])
    moment = np.concatenate([[0.0], np.cumsum(weights * sorted_times)])
    return np.asarray(total[count] * (edges - origin) - moment[count])
