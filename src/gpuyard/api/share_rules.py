"""The rules of a shared server: the order of its queue, and the limits of groups."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

from gpuyard.api.result import Result, Row
from gpuyard.errors import UserMistake
from gpuyard.report.answers.share.rules import rules_answer
from gpuyard.share.client import open_client, open_reader
from gpuyard.share.config import Rules
from gpuyard.units import parse_seconds

_MAX_DIGITS = 9
_NONE = "none"


def change_rules(
    *,
    half_life: str | None = None,
    fair_share: str | None = None,
    quota: Sequence[str] = (),
    weekly_hours: Sequence[str] = (),
    group_priority: Sequence[str] = (),
    max_gpus_per_user: str | None = None,
    max_lease: str | None = None,
    idle_grace: str | None = None,
    on_violation: str | None = None,
    stop_after: str | None = None,
    keep_history: str | None = None,
    commands: str | None = None,
    dry_run: bool = False,
) -> Result[Row]:
    """Change the rules that are given as their admin, and return all; "none" removes a rule."""
    before = open_reader().config.rules
    given: dict[str, tuple[str | None, Callable[[str], object]]] = {
        "half_life_seconds": (half_life, _parse_seconds_or_none),
        "max_lease_seconds": (max_lease, _parse_seconds_or_none),
        "history_seconds": (keep_history, _parse_seconds_or_none),
        "max_gpus_per_user": (max_gpus_per_user, _parse_count_or_none),
        "idle_grace_seconds": (idle_grace, parse_seconds),
        "stop_after_seconds": (stop_after, parse_seconds),
        "fair_share": (fair_share, str),
        "commands": (commands, str),
        "on_violation": (on_violation, str),
    }
    changes = {name: parse(text) for name, (text, parse) in given.items() if text}
    limits = {
        "quotas": _change_limits(before.quotas, quota, int),
        "weekly_hours": _change_limits(before.weekly_hours, weekly_hours, float),
        "priorities": _change_limits(before.priorities, group_priority, int),
    }
    rules = Rules.from_document({**asdict(before), **changes, **limits})
    if rules != before and not dry_run:
        open_client().set_rules(rules, before)
    return Result(rules_answer(rules, dry_run=dry_run))


def _parse_seconds_or_none(text: str) -> float | None:
    return None if text == _NONE else parse_seconds(text)


def _parse_count_or_none(text: str) -> int | None:
    if text == _NONE:
        return None
    if not text.isdecimal() or len(text) > _MAX_DIGITS:
        raise UserMistake(f"expected a number of GPUs like 4, or none, got {text!r}")
    return int(text)


def _change_limits(
    current: Mapping[str, float], words: Sequence[str], number: type[float]
) -> dict[str, float]:
    """Add limits like "students=2", and remove those like "students=none"."""
    limits = dict(current)
    for word in words:
        group, _, value = word.partition("=")
        try:
            if value == _NONE:
                limits.pop(group, None)
            else:
                limits[group] = number(value)
        except ValueError:
            group = ""
        if not group:
            raise UserMistake(f"expected a group and a number like students=2, got {word!r}")
    return limits
