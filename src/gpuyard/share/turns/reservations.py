"""Reservations and drains in the store: made, listed and taken back on behalf of a caller whom the kernel named."""

import contextlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.share.turns.calendar import (
    DRAIN,
    RESERVATION,
    Calendar,
    Reservation,
    arranged,
    most_reserved,
)
from gpuyard.share.turns.rules import groups_of
from gpuyard.share.turns.when import shown

if TYPE_CHECKING:
    import sqlite3

    from gpuyard.share.service.caller import Caller
    from gpuyard.share.store.clock import Clock
    from gpuyard.share.store.config import ShareConfig
    from gpuyard.share.store.database import Database
    from gpuyard.share.store.lease import Lease
    from gpuyard.share.store.locks import Locks

_COLUMNS = ", ".join(f'"{name}"' for name in Reservation.__dataclass_fields__)
_LONGEST_SECONDS = 366 * 86400.0
_MOST_OF_ONE_USER = 100
_ABOUT_SECONDS = 1.0  # two clocks that are read one after the other differ


@dataclass(frozen=True)
class Wish:
    """What somebody wants to reserve; moments in seconds since 1970."""

    count: int
    start: float
    end: float
    gpus: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.count < 1:
            raise UserMistake(f"a reservation is for 1 GPU or more, got {self.count}")
        if self.gpus and (len(set(self.gpus)) != len(self.gpus) or self.count != len(self.gpus)):
            raise UserMistake(f"expected {self.count} different GPUs, got {list(self.gpus)}")
        if not 0 < self.end - self.start <= _LONGEST_SECONDS:
            raise UserMistake("a reservation lasts more than 0 seconds and at most 366 days")

    @classmethod
    def from_document(cls, document: Any) -> "Wish":
        """What came over a socket."""
        try:
            return cls(
                int(document["count"]),
                float(document["start"]),
                float(document["end"]),
                indices(document.get("gpus", ())),
            )
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
            raise UserMistake(
                "this is not a reservation that this version of gpuyard knows"
            ) from None


def indices(document: Any) -> tuple[int, ...]:
    """GPUs by index, as they came over a socket."""
    if not isinstance(document, list | tuple) or any(type(one) is not int for one in document):
        raise UserMistake("this request has a value of the wrong type")
    return tuple(document)


class Reservations:
    """The table of them."""

    def __init__(
        self, database: "Database", clock: "Clock", config: "ShareConfig", locks: "Locks"
    ) -> None:
        self._database = database
        self._clock = clock
        self._config = config
        self._locks = locks

    def current(self) -> list[Reservation]:
        """All that are not over, by their start; drains among them."""
        return self._select('"end" IS NULL OR "end" > ?', self._clock.wall())

    def calendar(self) -> Calendar:
        """How they stand to leases now."""
        found = self.current()
        return Calendar.of(found, self._clock.boot() - self._clock.wall()) if found else Calendar()

    def make(
        self, caller: "Caller", wish: Wish, living: "Callable[[], Sequence[Lease]]"
    ) -> Reservation:
        """Or say why it can't be. Leases without an end that are on its GPUs end when it starts."""
        self._check(wish.count, wish.gpus)
        now = self._clock.wall()
        if wish.start < now - 60 or wish.end <= now:  # a minute: "now" was said a moment ago
            raise UserMistake(f"{shown(wish.start)} is in the past; it is {shown(now)} now")
        with self._database.transaction() as connection:
            others = [one for one in self.current() if one.kind == RESERVATION]
            if sum(one.uid == caller.uid for one in others) >= _MOST_OF_ONE_USER:
                raise GpuyardError(f"you have {_MOST_OF_ONE_USER} reservations; cancel some first")
            self._refuse_above_quota(caller, wish, others)
            held = [lease for lease in living() if lease.held]
            new = Reservation(
                -1,
                os.urandom(4).hex(),
                RESERVATION,
                caller.uid,
                caller.user,
                wish.count,
                wish.gpus,
                (),
                wish.start,
                wish.end,
            )
            found = arranged(
                new,
                others,
                gpus=self._config.indices,
                rates=self._config.rates,
                is_held=lambda one, gpu: any(
                    self._stays(lease, one) for lease in held if gpu in lease.gpus
                ),
                now=now,
            )
            if found is None:
                raise GpuyardError(self._full(new, others, held))
            before = {one.number: one.gpus for one in others}
            for one in found:
                if one.number == new.number:
                    made = self._insert(connection, one)
                elif one.gpus != before[one.number]:
                    connection.execute(
                        "UPDATE reservations SET gpus = ? WHERE number = ?",
                        (json.dumps(one.gpus), one.number),
                    )
            changed = {
                gpu
                for one in found
                if one.gpus != before.get(one.number)
                for gpu in (*one.gpus, *before.get(one.number, ()))
            }
            self._cut_again(connection, changed, held)
        return made

    def cancel(
        self, caller: "Caller", id_: str, living: "Callable[[], Sequence[Lease]]"
    ) -> Reservation:
        """One's own; admins anybody's."""
        with self._database.transaction() as connection:
            found = [one for one in self.current() if one.id == id_ and one.kind == RESERVATION]
            if not found:
                raise UserMistake(
                    f"there is no reservation {id_!r} now; `gpuyard reserve list` lists them"
                )
            (one,) = found
            if caller.uid != one.uid and not self._is_admin(caller):
                raise GpuyardError(
                    f"reservation {id_} is {one.user}'s; only {one.user} and members of the group "
                    f"{self._config.admin_group} can cancel it"
                )
            connection.execute("DELETE FROM reservations WHERE number = ?", (one.number,))
            held = [lease for lease in living() if lease.held]
            self._cut_again(connection, set(one.gpus), held)
        return one

    def drain(self, caller: "Caller", gpus: tuple[int, ...], until: float | None) -> Reservation:
        """From now on these GPUs (none named: all) are not leased; what runs on them goes on."""
        self._needs_admin(caller, "drain GPUs")
        self._check(max(1, len(gpus)), gpus)
        chosen = gpus or self._config.indices
        now = self._clock.wall()
        if until is not None and until <= now:
            raise UserMistake(f"{shown(until)} is in the past; it is {shown(now)} now")
        with self._database.transaction() as connection:
            return self._insert(
                connection,
                Reservation(
                    -1,
                    os.urandom(4).hex(),
                    DRAIN,
                    caller.uid,
                    caller.user,
                    len(chosen),
                    gpus,
                    chosen,
                    now,
                    until,
                ),
            )

    def resume(self, caller: "Caller") -> list[Reservation]:
        """End all drains; those that there were."""
        self._needs_admin(caller, "resume leasing")
        with self._database.transaction() as connection:
            found = [one for one in self.current() if one.kind == DRAIN]
            connection.execute("DELETE FROM reservations WHERE kind = ?", (DRAIN,))
        return found

    def _refuse_above_quota(
        self, caller: "Caller", wish: Wish, others: Sequence[Reservation]
    ) -> None:
        """What a group may not hold at once it can't keep from others either."""
        quotas = self._config.rules.quotas
        for group in sorted(groups_of(caller.uid) & quotas.keys()) if quotas else ():
            members = [one for one in others if group in groups_of(one.uid)]
            when, reserved = most_reserved(wish.start, wish.end, members)
            if reserved + wish.count > quotas[group]:
                used = f", of which {reserved} are reserved at {shown(when)}" if reserved else ""
                raise GpuyardError(
                    f"the group {group} has a quota of {quotas[group]} "
                    f"GPU{'' if quotas[group] == 1 else 's'} at once{used}; reserve fewer"
                )

    def _stays(self, lease: "Lease", reservation: Reservation) -> bool:
        """Whether a lease may still hold its GPUs when a reservation starts."""
        if lease.uid == reservation.uid:
            return False
        if lease.until_boot is not None:
            until = self._clock.wall_at(lease.until_boot)
            if until <= reservation.start + _ABOUT_SECONDS:
                return False
            if lease.seconds is not None:
                return True
        # without a promised end it is cut, but not without notice
        return reservation.start < self._clock.wall() + self._config.notice_seconds

    def _cut_again(
        self, connection: "sqlite3.Connection", gpus: set[int], held: "Sequence[Lease]"
    ) -> None:
        """Leases without an end of their own end when the first other's time on their GPUs starts."""
        now, calendar = self._clock.boot(), self._reserved()
        for lease in held:
            if lease.seconds is not None or not gpus.intersection(lease.gpus):
                continue
            until = calendar.cut(lease.gpus, lease.uid, now)
            if until is None and lease.until_boot is None:
                continue
            connection.execute(
                "UPDATE leases SET until_boot = ? WHERE number = ?", (until, lease.number)
            )
            with contextlib.suppress(OSError):  # the launcher reads it there
                self._locks.note(lease.id, json.dumps(asdict(replace(lease, until_boot=until))))

    def _reserved(self) -> Calendar:
        """Without drains, which cut nothing."""
        found = [one for one in self.current() if one.kind == RESERVATION]
        return Calendar.of(found, self._clock.boot() - self._clock.wall())

    def _full(
        self, new: Reservation, others: Sequence[Reservation], held: "Sequence[Lease]"
    ) -> str:
        what = f"{new.count} GPU{'' if new.count == 1 else 's'} can't be reserved then: "
        total = len(self._config.indices)
        when, reserved = most_reserved(new.start, new.ends, others)
        if reserved + new.count > total:
            return (
                f"{what}at {shown(when)} {reserved} of {total} are reserved already; "
                "`gpuyard reserve list` shows by whom"
            )
        for one in others:
            named = sorted(set(new.wanted) & set(one.gpus))
            if named and one.overlaps(new.start, new.ends):
                return (
                    f"{what}GPU {named[0]} is reserved for {one.user} from {shown(one.start)} to "
                    f"{shown(one.ends)}"
                )
        for lease in held:
            if self._stays(lease, new) and (not new.wanted or set(new.wanted) & set(lease.gpus)):
                if lease.until_boot is not None and lease.seconds is not None:
                    until = f"until {shown(self._clock.wall_at(lease.until_boot))}"
                else:
                    notice = self._config.notice_seconds / 3600
                    until = f"without an end, and cut only with {notice:g} h notice"
                return (
                    f"{what}GPU {', '.join(map(str, lease.gpus))} is leased by {lease.user} {until}"
                )
        return f"{what}no {new.count} are free for all of that time; try another time or fewer"

    def _check(self, count: int, gpus: Sequence[int]) -> None:
        known = self._config.indices
        if count > len(known):
            raise UserMistake(f"{count} GPUs were requested; this machine has {len(known)}")
        for index in gpus:
            if index not in known:
                raise UserMistake(
                    f"there is no GPU {index}; this machine has {', '.join(map(str, known))}"
                )

    def _is_admin(self, caller: "Caller") -> bool:
        return caller.is_admin(self._config.admin_group)

    def _needs_admin(self, caller: "Caller", what: str) -> None:
        if not self._is_admin(caller):
            raise GpuyardError(
                f"only root and members of the group {self._config.admin_group} can {what}"
            )

    def _insert(self, connection: "sqlite3.Connection", one: Reservation) -> Reservation:
        values = asdict(one)
        del values["number"]
        for listed in ("wanted", "gpus"):
            values[listed] = json.dumps(values[listed])
        names = ", ".join(f'"{name}"' for name in values)
        marks = ", ".join("?" * len(values))
        cursor = connection.execute(
            f"INSERT INTO reservations ({names}) VALUES ({marks})",  # noqa: S608 - our own columns
            tuple(values.values()),
        )
        return replace(one, number=cursor.lastrowid or 0)

    def _select(self, condition: str, *values: object) -> list[Reservation]:
        with self._database.sentences():
            rows = self._database.connection.execute(
                f"SELECT {_COLUMNS} FROM reservations WHERE {condition}"  # noqa: S608 - as above
                ' ORDER BY "start", number',
                values,
            ).fetchall()
        names = tuple(Reservation.__dataclass_fields__)
        documents = [dict(zip(names, row, strict=True)) for row in rows]
        for document in documents:
            for listed in ("wanted", "gpus"):
                document[listed] = json.loads(document[listed])
        return [Reservation.from_document(document) for document in documents]
