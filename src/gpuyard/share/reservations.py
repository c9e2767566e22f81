"""Reservations and drains: create and cancel them, check them against leases and quotas, and assign their GPUs."""

import contextlib
import json
import math
import os
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.share.caller import Caller, groups_of
from gpuyard.share.config import describe_quota
from gpuyard.share.gpu_choice import choose_free_gpus
from gpuyard.share.models import (
    DRAIN,
    RESERVATION,
    WHOLE,
    Lease,
    Rates,
    Reservation,
    ReservationRequest,
)
from gpuyard.share.store import Store, insert

MAX_PER_USER = 30
_MAX_AGE_SECONDS = 60.0  # a client read its clock for "now" a moment ago
_CLOCK_TOLERANCE_SECONDS = 1.0  # the wall and boot clocks are read one after the other


class Reservations:
    """The operations on reservations. The caller is a user whom the kernel identified."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._clock = store.clock

    def reserve(self, caller: Caller, request: ReservationRequest) -> Reservation:
        """Reserve GPUs, or raise an error that explains why they cannot be reserved.

        Leases without a time limit on these GPUs end when the reservation starts.
        """
        config = self._store.config
        config.check_gpus(request.count, request.gpus)
        config.rules.check_time("reservation", request.end - request.start)
        now = self._clock.wall()
        if request.start < now - _MAX_AGE_SECONDS or request.end <= now:
            raise _in_the_past(request.start, now)
        _check_not_too_late(request.start, now)
        with self._store.transaction() as connection:
            others = [r for r in self._store.reservations() if r.kind == RESERVATION]
            if sum(other.uid == caller.uid for other in others) >= MAX_PER_USER:
                raise GpuyardError(
                    f"{caller.user} has {MAX_PER_USER} reservations, which is the limit per user; cancel some first"
                )
            self._check_quota(caller, request, others)
            held = self._store.held_leases()
            new = Reservation(
                **_new_identity(caller, RESERVATION),
                count=request.count,
                requested_gpus=request.gpus,
                gpus=(),
                start=request.start,
                end=request.end,
            )
            placed = place_reservations(
                new,
                others,
                gpus=config.indices,
                rates=config.rates,
                is_held=lambda reservation, gpu: any(
                    self._outlasts(lease, reservation) for lease in held if gpu in lease.gpus
                ),
                now=now,
            )
            if placed is None:
                raise GpuyardError(self._explain_refusal(new, others, held))
            created, changed_gpus = self._save_placement(connection, placed, others)
            self._update_ends(connection, changed_gpus, held)
        return created

    def cancel(self, caller: Caller, reservation_id: str) -> Reservation:
        """Cancel a reservation of the caller or, as an admin, of anyone."""
        config = self._store.config
        with self._store.transaction() as connection:
            reservation = next(
                (
                    reservation
                    for reservation in self._store.reservations()
                    if reservation.id == reservation_id and reservation.kind == RESERVATION
                ),
                None,
            )
            if reservation is None:
                raise UserMistake(
                    f"reservation {reservation_id!r} not found; `gpuyard reserve list` lists them"
                )
            if caller.uid != reservation.uid and not caller.is_admin(config.admin_group):
                raise GpuyardError(
                    f"reservation {reservation_id} belongs to {reservation.user}; only "
                    f"{reservation.user} and members of the group {config.admin_group} can cancel it"
                )
            connection.execute("DELETE FROM reservations WHERE number = ?", (reservation.number,))
            self._update_ends(connection, set(reservation.gpus), self._store.held_leases())
        return reservation

    def drain(self, caller: Caller, gpus: tuple[int, ...], until: float | None) -> Reservation:
        """Stop leasing these GPUs (none named: all) from now on; running leases continue."""
        config = self._store.config
        self._check_admin(caller, "drain GPUs")
        config.check_gpus(len(gpus), gpus)
        now = self._clock.wall()
        if until is not None and until <= now:
            raise _in_the_past(until, now)
        if until is not None:
            _check_not_too_late(until, now)
        drained = gpus or config.indices
        drain = Reservation(
            **_new_identity(caller, DRAIN),
            count=len(drained),
            requested_gpus=gpus,
            gpus=drained,
            start=now,
            end=until,
        )
        with self._store.transaction() as connection:
            return _insert(connection, drain)

    def resume(self, caller: Caller) -> list[Reservation]:
        """End all drains, and return them."""
        self._check_admin(caller, "resume leasing")
        with self._store.transaction() as connection:
            drains = [r for r in self._store.reservations() if r.kind == DRAIN]
            connection.execute("DELETE FROM reservations WHERE kind = ?", (DRAIN,))
        return drains

    def _check_quota(
        self, caller: Caller, request: ReservationRequest, others: Sequence[Reservation]
    ) -> None:
        """Refuse to reserve more than a user or group may hold at once."""
        rules = self._store.config.rules
        for owner, quota in sorted(rules.quotas_of(caller.user, groups_of(caller.uid)).items()):
            members = [
                other
                for other in others
                if owner in rules.quotas_of(other.user, groups_of(other.uid))
            ]
            when, reserved = peak_reserved(request.start, request.end, members)
            if reserved + request.count > quota:
                used = f", of which {reserved} are reserved at {_format(when)}" if reserved else ""
                raise GpuyardError(f"{describe_quota(owner, quota)}{used}; reserve fewer")

    def _outlasts(self, lease: Lease, reservation: Reservation) -> bool:
        """Return whether a lease may still hold its GPUs when a reservation of another user starts."""
        if lease.uid == reservation.uid:
            return False
        if lease.until_boot is not None:
            until = self._clock.wall_at(lease.until_boot)
            if until <= reservation.start + _CLOCK_TOLERANCE_SECONDS:
                return False
            if lease.seconds is not None:
                return True
        # a lease without a time limit is shortened, but only with notice
        return reservation.start < self._clock.wall() + self._store.config.notice_seconds

    def _save_placement(
        self,
        connection: sqlite3.Connection,
        placed: Sequence[Reservation],
        others: Sequence[Reservation],
    ) -> tuple[Reservation, set[int]]:
        """Write the new reservation and those that moved; return the new one and all affected GPUs."""
        gpus_before = {other.number: other.gpus for other in others}
        changed_gpus: set[int] = set()
        for reservation in placed:
            before = gpus_before.get(reservation.number)
            if reservation.gpus == before:
                continue
            changed_gpus.update(reservation.gpus, before or ())
            if before is None:
                created = _insert(connection, reservation)
            else:
                connection.execute(
                    "UPDATE reservations SET gpus = ? WHERE number = ?",
                    (json.dumps(reservation.gpus), reservation.number),
                )
        return created, changed_gpus

    def _update_ends(
        self, connection: sqlite3.Connection, gpus: set[int], held: Sequence[Lease]
    ) -> None:
        """End leases without a time limit when the first reservation of another user on their GPUs starts."""
        now, calendar = self._clock.boot(), self._store.calendar(with_drains=False)
        for lease in held:
            if lease.seconds is not None or not gpus.intersection(lease.gpus):
                continue
            until = calendar.latest_end(lease.gpus, lease.uid, now)
            if until is None and lease.until_boot is None:
                continue
            connection.execute(
                "UPDATE leases SET until_boot = ? WHERE number = ?", (until, lease.number)
            )
            with contextlib.suppress(OSError):  # the launcher reads the new end there
                note = json.dumps(asdict(replace(lease, until_boot=until)))
                self._store.locks.write_note(lease.id, note)

    def _explain_refusal(
        self, new: Reservation, others: Sequence[Reservation], held: Sequence[Lease]
    ) -> str:
        what = f"{new.count} GPU{'' if new.count == 1 else 's'} cannot be reserved then: "
        total = len(self._store.config.gpus)
        when, reserved = peak_reserved(new.start, new.end_or_infinity, others)
        if reserved + new.count > total:
            return (
                f"{what}at {_format(when)} {reserved} of {total} are already reserved; "
                "`gpuyard reserve list` shows by whom"
            )
        for other in others:
            shared = sorted(set(new.requested_gpus) & set(other.gpus))
            if shared and other.overlaps(new.start, new.end_or_infinity):
                return (
                    f"{what}GPU {shared[0]} is reserved for {other.user} from "
                    f"{_format(other.start)} to {_format(other.end_or_infinity)}"
                )
        for lease in held:
            requested = set(new.requested_gpus)
            if self._outlasts(lease, new) and (not requested or requested & set(lease.gpus)):
                if lease.until_boot is not None and lease.seconds is not None:
                    until = f"until {_format(self._clock.wall_at(lease.until_boot))}"
                else:
                    hours = self._store.config.notice_seconds / 3600
                    until = f"without a time limit, which needs {hours:g} h notice to end"
                gpus = ", ".join(map(str, lease.gpus))
                return f"{what}GPU {gpus} is leased by {lease.user} {until}"
        return f"{what}no {new.count} are free for the whole time; try another time or fewer"

    def _check_admin(self, caller: Caller, action: str) -> None:
        group = self._store.config.admin_group
        if not caller.is_admin(group):
            raise GpuyardError(f"only root and members of the group {group} can {action}")


def _new_identity(caller: Caller, kind: str) -> dict[str, Any]:
    """Return the first fields of a new reservation; the store assigns its number."""
    return {
        "number": -1,
        "id": os.urandom(4).hex(),
        "kind": kind,
        "uid": caller.uid,
        "user": caller.user,
    }


def _insert(connection: sqlite3.Connection, reservation: Reservation) -> Reservation:
    values = asdict(reservation)
    del values["number"]
    return replace(reservation, number=insert(connection, "reservations", values))


def _in_the_past(moment: float, now: float) -> UserMistake:
    return UserMistake(f"{_format(moment)} is in the past; it is {_format(now)} now")


def _check_not_too_late(moment: float, now: float) -> None:
    """Refuse times that `parse_time` refuses, because a client may send any number."""
    from gpuyard.share.timeparse import MAX_DAYS_AHEAD

    if moment > now + MAX_DAYS_AHEAD * 86400 + _MAX_AGE_SECONDS:
        raise UserMistake(f"{_format(moment)} is more than {MAX_DAYS_AHEAD} days away")


def _format(moment: float) -> str:
    from gpuyard.share.timeparse import format_time  # `lease` starts faster without datetime

    return format_time(moment)


def place_reservations(
    new: Reservation,
    others: Sequence[Reservation],
    *,
    gpus: Sequence[int],
    rates: Rates,
    is_held: Callable[[Reservation, int], bool],
    now: float,
) -> list[Reservation] | None:
    """Assign GPUs to all reservations without overlaps; None if they do not fit.

    If the new one fits next to the others, it gets the best-connected GPUs. Otherwise, all that have not started and
    name no GPUs are placed again in the order of their start, in the tightest gaps first. If no reservation names its
    GPUs, that succeeds whenever there are enough GPUs at every time.

    `is_held` reports whether a lease that cannot be shortened is on a GPU when a reservation starts.
    """
    free = {
        gpu: WHOLE for gpu in gpus if not is_held(new, gpu) and not _is_booked(gpu, new, others)
    }
    chosen = choose_free_gpus(new.count, WHOLE, new.requested_gpus, free, rates)
    if chosen:
        return [*others, replace(new, gpus=chosen)]
    placed = [other for other in others if other.requested_gpus or other.start <= now]
    if new.requested_gpus:
        if any(_is_booked(gpu, new, placed) or is_held(new, gpu) for gpu in new.requested_gpus):
            return None
        placed.append(replace(new, gpus=new.requested_gpus))
    placed_numbers = {reservation.number for reservation in placed}
    movable = [other for other in (*others, new) if other.number not in placed_numbers]
    for reservation in sorted(movable, key=lambda reservation: reservation.start):
        candidates = [
            gpu
            for gpu in gpus
            if not is_held(reservation, gpu) and not _is_booked(gpu, reservation, placed)
        ]
        if len(candidates) < reservation.count:
            return None
        candidates.sort(key=lambda gpu: _next_start(gpu, reservation, placed))
        placed.append(replace(reservation, gpus=tuple(sorted(candidates[: reservation.count]))))
    return placed


def peak_reserved(
    start: float, end: float, reservations: Sequence[Reservation]
) -> tuple[float, int]:
    """Return when the most GPUs are reserved in a time, and how many."""
    times = [start, *(other.start for other in reservations if start < other.start < end)]
    counts = [
        (sum(r.count for r in reservations if r.start <= time < r.end_or_infinity), time)
        for time in times
    ]
    peak = max(count for count, _ in counts)
    return min(time for count, time in counts if count == peak), peak


def _is_booked(gpu: int, reservation: Reservation, others: Sequence[Reservation]) -> bool:
    return any(
        gpu in other.gpus and other.overlaps(reservation.start, reservation.end_or_infinity)
        for other in others
    )


def _next_start(gpu: int, reservation: Reservation, others: Sequence[Reservation]) -> float:
    """Return when the next reservation of a GPU starts after this one."""
    return min(
        (
            other.start
            for other in others
            if gpu in other.gpus and other.start >= reservation.end_or_infinity
        ),
        default=math.inf,
    )
