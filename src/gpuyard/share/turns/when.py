"""Moments as people write them ("Mon 18:00", "tomorrow 8:00", "2026-11-20 09:00"), in the machine's time zone."""

import re
from typing import TYPE_CHECKING

from gpuyard.errors import UserMistake, quoted

if TYPE_CHECKING:
    from datetime import date, datetime

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_WRITTEN = re.compile(
    r"(?:(?P<day>[a-z]+|\d{4}-\d\d-\d\d)(?:\s+|t))?(?P<hour>\d{1,2}):(?P<minute>\d\d)"
)
_MOST_DAYS = 366


def parse_when(text: str, now: float) -> float:
    """Seconds since 1970. A weekday is the next one whose time has not passed; a time alone is today's."""
    from datetime import date, datetime, timedelta

    written = text.strip().lower()
    if written == "now":
        return now
    match = _WRITTEN.fullmatch(written)
    if match is None:
        raise _unreadable(text)
    here = datetime.fromtimestamp(now)
    hour, minute = int(match["hour"]), int(match["minute"])
    if hour > 23 or minute > 59:
        raise _unreadable(text)
    day = match["day"]
    if day in (None, "today"):
        then = _at(here.date(), hour, minute, text)
    elif day == "tomorrow":
        then = _at(here.date() + timedelta(1), hour, minute, text)
    elif day[0].isdigit():
        try:
            then = _at(date.fromisoformat(day), hour, minute, text)
        except ValueError:
            raise _unreadable(text) from None
    else:
        then = _at_weekday(day, here, hour, minute, text)
    if then <= now:
        hint = f"; write it like 'tomorrow {hour}:{minute:02}'" if day is None else ""
        raise UserMistake(
            f"{text.strip()!r} is in the past; it is {here:%a %Y-%m-%d %H:%M} now{hint}"
        )
    if then > now + _MOST_DAYS * 86400:
        raise UserMistake(f"{text.strip()!r} is more than {_MOST_DAYS} days away")
    return then


def shown(moment: float) -> str:
    """1795000000.0 → "Wed 2026-11-18 11:06", in the machine's zone."""
    from datetime import datetime

    return f"{datetime.fromtimestamp(round(moment)):%a %Y-%m-%d %H:%M}"  # two clocks differ by a little


def _at_weekday(day: str, here: "datetime", hour: int, minute: int, text: str) -> float:
    from datetime import timedelta

    numbers = [i for i, name in enumerate(_DAYS) if len(day) > 2 and name.startswith(day)]
    if not numbers:
        raise _unreadable(text)
    ahead = (numbers[0] - here.weekday()) % 7
    if ahead == 0 and (hour, minute) <= (here.hour, here.minute):
        ahead = 7
    return _at(here.date() + timedelta(ahead), hour, minute, text)


def _at(day: "date", hour: int, minute: int, text: str) -> float:
    from datetime import datetime

    there = datetime(day.year, day.month, day.day, hour, minute)
    then = there.timestamp()
    if datetime.fromtimestamp(then) != there:
        raise UserMistake(f"{text.strip()!r} does not exist: the clock is set forward then")
    return then


def _unreadable(text: str) -> UserMistake:
    return UserMistake(
        f"expected a time like 'Mon 18:00', 'tomorrow 8:00', '18:00' or '2026-11-20 09:00', got {quoted(text)}"
    )
