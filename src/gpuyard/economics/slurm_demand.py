"""Demand by the hour from Slurm's accounting: `sacct -P -X -o JobID,Start,End,AllocTRES`."""

import re

import numpy as np

from gpuyard.economics.amounts import Array
from gpuyard.economics.demand import Demand, demand_of
from gpuyard.errors import UserMistake

# "gres/gpu=8" or, where only the typed count is kept, "gres/gpu:a100=8"
_GPUS = re.compile(r"(?:^|,)gres/gpu(:[^=,]+)?=(\d+)")
_NEEDED = ("Start", "End", "AllocTRES")
_UNKNOWN = {"", "Unknown", "None"}


def demand_from_sacct(text: str, name: str) -> Demand:
    """Mean GPUs in use in each hour from the first start to the last end.

    Steps of a job ("12.batch") count with their job. Jobs without GPUs, and those that have not
    started or not ended, are left out.
    """
    lines = text.splitlines()
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
        count = gpus_of(cells[tres_at])
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
    return demand_of(_by_hour(first, last, np.array(gpus, dtype=np.float64)), 1.0, name)


def gpus_of(tres: str) -> int:
    """ "cpu=16,gres/gpu=8,gres/gpu:a100=8" → 8: the sum without types, else over the types."""
    found = _GPUS.findall(tres)
    plain = [int(count) for kind, count in found if not kind]
    return plain[0] if plain else sum(int(count) for _, count in found)


def _seconds(times: list[str], numbers: list[int], name: str) -> Array:
    try:
        return np.array(times, dtype="datetime64[s]").astype(np.float64)
    except ValueError:
        pass
    for text, number in zip(times, numbers, strict=True):
        try:
            np.datetime64(text, "s")
        except ValueError:
            raise UserMistake(
                f"{name}:{number}: {text!r} is not a time like 2026-01-31T09:00:00"
            ) from None
    raise UserMistake(f"{name}: its times can't be read")


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
