"""The rules of a share: who comes first, who may hold how much, and what is done about violations."""

import grp
import math
import os
import pwd
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from gpuyard.errors import UserMistake
from gpuyard.share.store.lease import WHOLE, Lease

WEEK_SECONDS = 7 * 86400.0
_MOST = 1e9  # of any number in a policy
NOTHING, WARN, STOP = "none", "warn", "stop"


@dataclass(frozen=True)
class Rules:
    """Set by `gpuyard share policy`; without any, who comes first is served first."""

    half_life_seconds: float | None = None
    """After so long GPU-hours count half; None: what somebody used does not count."""
    fair_share: str = "user"
    """Whose use counts: the `user`'s or their main `group`'s."""
    quotas: Mapping[str, int] = field(default_factory=dict)
    """GPUs that all members of a Unix group hold at once."""
    weekly_hours: Mapping[str, float] = field(default_factory=dict)
    """GPU-hours of all members of a group in the last 7 days."""
    priorities: Mapping[str, int] = field(default_factory=dict)
    """Of a group; the highest of a user's counts."""
    idle_grace_seconds: float = 3600.0
    on_violation: str = NOTHING
    stop_after_seconds: float = 600.0

    def __post_init__(self) -> None:
        if self.fair_share not in ("user", "group"):
            raise UserMistake(f"fair share is by user or group, got {self.fair_share!r}")
        if self.on_violation not in (NOTHING, WARN, STOP):
            raise UserMistake(f"on a violation: none, warn or stop, got {self.on_violation!r}")
        times = (self.half_life_seconds or 1.0, self.idle_grace_seconds, self.stop_after_seconds)
        if not all(0 < seconds < 1e9 for seconds in times):
            raise UserMistake("the times of a policy are above zero")
        if any(limit < 0 for limit in (*self.quotas.values(), *self.weekly_hours.values())):
            raise UserMistake("a quota is 0 or more")

    @classmethod
    def from_document(cls, document: Any) -> "Rules":
        """As `document` writes it, after a way through JSON."""
        unknown = UserMistake("this is not a policy that this version of gpuyard knows")
        try:
            rules = cls(**document)
        except (TypeError, ValueError, AttributeError):
            raise unknown from None
        for limits, kinds in (
            (rules.quotas, (int,)),
            (rules.weekly_hours, (int, float)),
            (rules.priorities, (int,)),
        ):
            if not isinstance(limits, dict) or any(
                type(limit) not in kinds or not abs(limit) < _MOST for limit in limits.values()
            ):
                raise unknown
        return rules

    def document(self) -> dict[str, Any]:
        return asdict(self)

    def priority(self, groups: frozenset[str]) -> int:
        return max((self.priorities[group] for group in groups & self.priorities.keys()), default=0)


@dataclass(frozen=True)
class Allowance:
    """What groups may still take; pure, so that whose turn it is can be computed."""

    left: Mapping[str, int] = field(default_factory=dict)
    """Millionths of GPUs, by group; a group that is not in it has no limit."""
    groups: Mapping[int, frozenset[str]] = field(default_factory=dict)
    """By uid."""

    def exceeded(self, lease: Lease) -> str | None:
        """A group that can't take so much more now."""
        for group in sorted(self.groups.get(lease.uid, frozenset()) & self.left.keys()):
            if lease.count * lease.parts > self.left[group]:
                return group
        return None

    def less(self, lease: Lease) -> "Allowance":
        """After that one has started."""
        left = dict(self.left)
        for group in self.groups.get(lease.uid, frozenset()) & left.keys():
            left[group] -= lease.count * lease.parts
        return Allowance(left, self.groups)


def allowance(
    rules: Rules, living: Sequence[Lease], past: Mapping[int, float], now: float
) -> Allowance:
    """By what is held, and by the GPU-seconds of leases that have ended in the last week (`past`, by uid)."""
    if not rules.quotas and not rules.weekly_hours:
        return Allowance()
    groups = {uid: groups_of(uid) for uid in {*past, *(lease.uid for lease in living)}}
    left = {group: quota * WHOLE for group, quota in rules.quotas.items()}
    for lease in living:
        for group in groups[lease.uid] & left.keys():
            if lease.held:
                left[group] -= lease.count * lease.parts
    for group, hours in rules.weekly_hours.items():
        members = {uid for uid in groups if group in groups[uid]}
        used = sum(past[uid] for uid in members & past.keys())
        used += sum(
            _gpu_seconds(lease, now - WEEK_SECONDS, now)
            for lease in living
            if lease.held and lease.uid in members
        )
        if used >= hours * 3600:
            left[group] = 0
    return Allowance(left, groups)


def recent_use(
    rules: Rules,
    history: Sequence[Lease],
    now: float,
    waiting: Sequence[Lease] = (),
    past: Mapping[str, float] | None = None,
) -> dict[int, float]:
    """GPU-seconds by uid, halved after each half-life; by group, everybody who waits has their group's.

    `past`: those of leases that are not in `history`, by uid or group, as they count now.
    """
    if rules.half_life_seconds is None:
        return {}
    half_life = rules.half_life_seconds

    def whose(lease: Lease) -> str:
        return lease.group if rules.fair_share == "group" else str(lease.uid)

    used = dict(past or {})
    for lease in history:
        start, end = _time(lease, now)
        # the integral of what each second still counts
        counted = (
            half_life / math.log(2) * (decay(now - end, half_life) - decay(now - start, half_life))
        )
        gpus = lease.count * lease.parts / WHOLE
        used[whose(lease)] = used.get(whose(lease), 0.0) + counted * gpus
    return {lease.uid: used.get(whose(lease), 0.0) for lease in (*history, *waiting)}


def groups_of(uid: int) -> frozenset[str]:
    """All groups of an account, as the user database has them."""
    try:
        account = pwd.getpwuid(uid)
        numbers = os.getgrouplist(account.pw_name, account.pw_gid)
    except (KeyError, OSError):
        return frozenset()
    names = set()
    for number in numbers:
        try:
            names.add(grp.getgrgid(number).gr_name)
        except KeyError:
            continue
    return frozenset(names)


def _gpu_seconds(lease: Lease, since: float, now: float) -> float:
    start, end = _time(lease, now)
    return max(0.0, end - max(start, since)) * lease.count * lease.parts / WHOLE


def _time(lease: Lease, now: float) -> tuple[float, float]:
    """From when to when, by the wall clock; it may have been set back since."""
    start = now if lease.start is None else min(lease.start, now)
    return start, max(start, now if lease.end is None else min(lease.end, now))


def decay(age: float, half_life: float) -> float:
    """What a second that is so long ago still counts."""
    return float(0.5 ** (age / half_life))
