"""Times as people write them ("Mon 18:00", "tomorrow 8:00", "2026-11-20 09:00"), in the machine's time zone."""

import re
from datetime import date, datetime, timedelta

from gpuyard.errors import UserMistake, quote
from gpuyard.share.clock import round_moment

_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_PATTERN = re.compile(
    r"(?:(?P<day>[a-z]+|\d{4}-\d\d-\d\d)(?:\s+|t))?(?P<hour>\d{1,2}):(?P<minute>\d\d)"
)
MAX_DAYS_AHEAD = 366


def parse_time(text: str, now: float) -> float:
    """Return seconds since 1970. A weekday is the next one whose time has not passed; a time alone is today's."""
    written = text.strip().lower()
    if written == "now":
        return now
    match = _PATTERN.fullmatch(written)
    if match is None:
        raise _unreadable(text)
    local_now = datetime.fromtimestamp(now)
    hour, minute = int(match["hour"]), int(match["minute"])
    if hour > 23 or minute > 59:
        raise _unreadable(text)
    day = match["day"]
    if day in (None, "today"):
        then = _to_timestamp(local_now.date(), hour, minute, text)
    elif day == "tomorrow":
        then = _to_timestamp(local_now.date() + timedelta(1), hour, minute, text)
    elif day[0].isdigit():
        try:
            then = _to_timestamp(date.fromisoformat(day), hour, minute, text)
        except ValueError:
            raise _unreadable(text) from None
    else:
        then = _next_weekday(day, local_now, hour, minute, text)
    if then <= now:
        hint = f"; write it like 'tomorrow {hour}:{minute:02}'" if day is None else ""
        raise UserMistake(
            f"{text.strip()!r} is in the past; it is {local_now:%a %Y-%m-%d %H:%M} now{hint}"
        )
    if then > now + MAX_DAYS_AHEAD * 86400:
        raise UserMistake(f"{text.strip()!r} is more than {MAX_DAYS_AHEAD} days away")
    return then


def format_time(moment: float) -> str:
    """Format 1795000000.0 as "Wed 2026-11-18 11:06", in the machine's time zone."""
    # rounded, because the wall and boot clocks are read a moment apart
    return f"{datetime.fromtimestamp(round_moment(moment)):%a %Y-%m-%d %H:%M}"


def _next_weekday(day: str, local_now: datetime, hour: int, minute: int, text: str) -> float:
    numbers = [i for i, name in enumerate(_WEEKDAYS) if len(day) > 2 and name.startswith(day)]
    if not numbers:
        raise _unreadable(text)
    days_ahead = (numbers[0] - local_now.weekday()) % 7
    if days_ahead == 0 and (hour, minute) <= (local_now.hour, local_now.minute):
        days_ahead = 7
    return _to_timestamp(local_now.date() + timedelta(days_ahead), hour, minute, text)


def _to_timestamp(day: date, hour: int, minute: int, text: str) -> float:
    local = datetime(day.year, day.month, day.day, hour, minute)
    timestamp = local.timestamp()
    if datetime.fromtimestamp(timestamp) != local:
        raise UserMistake(f"{text.strip()!r} does not exist: the clock is set forward then")
    return timestamp


def _unreadable(text: str) -> UserMistake:
    return UserMistake(
        f"expected a time like 'Mon 18:00', 'tomorrow 8:00', '18:00', or '2026-11-20 09:00', got {quote(text)}"
    )
