"""How many GPUs are wanted when: from a table, from Slurm's accounting, or as a described pattern."""

import csv
import io
import itertools
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gpuyard.economics.amounts import HOURS_PER_YEAR, Array
from gpuyard.errors import UserMistake

Pattern = Literal["steady", "working-hours", "spiky"]
_COLUMNS = ("gpus", "gpu_hours")
_TIMES = ("time", "hour", "day", "date", "timestamp")
_WEEK_HOURS = 7 * 24
_BURST_HOURS = 12
_MOST_GPUS = 1e9  # beyond this a number is a slip


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

    @property
    def periods_per_year(self) -> float:
        return HOURS_PER_YEAR / self.hours_each

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
    lines = text.splitlines()
    header = next(csv.reader(lines[:1]), [])
    columns = [cell.strip().lower() for cell in header]
    wanted = [column for column in columns if column in _COLUMNS]
    if len(wanted) != 1:
        raise UserMistake(
            f"{name}:1: a table of demand has one column 'gpus' or 'gpu_hours'; "
            f"this one has: {', '.join(columns) or 'nothing'}"
        )
    at = columns.index(wanted[0])
    values = _column(lines, at, name)
    if hours_each is None:
        hours_each = _period_hours(lines, columns, name)
    gpus = values / hours_each if wanted[0] == "gpu_hours" and hours_each > 0 else values
    return demand_of(gpus, hours_each, name)


def described_demand(
    pattern: Pattern,
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
    if pattern == "working-hours":
        day, hour = clock // 24 % 7, clock % 24
        busy = (day < 5) & (hour >= 9) & (hour < 18)
    elif pattern == "spiky":
        bursts = round(busy_share * hours / _BURST_HOURS)
        chosen = np.random.default_rng(seed).permutation(hours // _BURST_HOURS)[:bursts]
        busy = np.isin(clock // _BURST_HOURS, chosen)
    return demand_of(np.where(busy, gpus, gpus * base_share), 1.0, f"{pattern} demand")


def _column(lines: list[str], at: int, name: str) -> Array:
    if not any(line.strip() for line in lines[1:]):
        raise UserMistake(f"{name}: there is no demand in it, only its first line")
    try:
        return np.loadtxt(
            io.StringIO("\n".join(lines[1:])), delimiter=",", usecols=at, ndmin=1, quotechar='"'
        )
    except ValueError:
        pass
    for number, row in enumerate(csv.reader(lines[1:]), 2):
        try:
            float(row[at])
        except (IndexError, ValueError):
            cell = row[at] if at < len(row) else "nothing"
            raise UserMistake(f"{name}:{number}: expected a number, got {cell!r}") from None
    raise UserMistake(f"{name}: there is no demand in it")


def _period_hours(lines: list[str], columns: list[str], name: str) -> float:
    times = [column for column in columns if column in _TIMES]
    rows = list(itertools.islice((row for row in csv.reader(lines[1:]) if row), 2))
    if not times or len(rows) < 2:
        raise UserMistake(
            f"{name}: without a column 'time' and two rows, say how long a row lasts: --every 'hour'"
        )
    at = columns.index(times[0])
    cells = [row[at].strip() if at < len(row) else "" for row in rows]
    try:
        first, second = (np.datetime64(cell.removesuffix("Z")) for cell in cells)
    except ValueError:
        raise UserMistake(
            f"{name}:2: {cells[0]!r} or {cells[1]!r} is not a time like '2026-01-31T09:00'"
        ) from None
    hours = float((second - first) / np.timedelta64(1, "s")) / 3600
    if not (math.isfinite(hours) and hours > 0):
        raise UserMistake(
            f"{name}:3: times must go up, but {cells[0]!r} is followed by {cells[1]!r}"
        )
    return hours
