"""Reserved times, a row for each day of each."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from gpuyard.report.answer import Answer, Column, Sentence, Table


def calendar_answer(reservations: Sequence[Mapping[str, Any]]) -> Answer:
    """What `reserve list` says."""
    document = {"reservations": list(reservations)}
    if not reservations:
        return Answer([Sentence("Nothing is reserved.")], document, verb="reserve")
    return Answer([calendar_table(reservations)], document, verb="reserve")


def calendar_table(reservations: Sequence[Mapping[str, Any]]) -> Table:
    """By day, then GPU, in the reader's time zone."""
    rows = sorted(
        (day.date(), one["gpus"], times, one)
        for number, one in enumerate(reservations)
        for day, times in _days(one, number)
    )
    return Table(
        "Reserved",
        ("day", "time", "GPUs", "user", Column("reservation", 1)),
        [
            [f"{day:%a %Y-%m-%d}", times[1], ", ".join(map(str, gpus)), one["user"], one["id"]]
            for day, gpus, times, one in rows
        ],
    )


def _days(one: Mapping[str, Any], number: int) -> Iterator[tuple[datetime, tuple[int, str]]]:
    """Each day with its part of the time; the number keeps equal rows apart."""
    start, end = (datetime.fromisoformat(one[key]).astimezone() for key in ("from", "until"))
    day = start.replace(hour=0, minute=0, second=0, microsecond=0)
    while day < end:
        following = (day.replace(tzinfo=None) + timedelta(1)).astimezone()
        first = "00:00" if start <= day else f"{start:%H:%M}"
        last = "24:00" if end >= following else f"{end:%H:%M}"
        yield day, (number, f"{first}–{last}")
        day = following
