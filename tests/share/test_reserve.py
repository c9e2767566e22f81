"""Reservations: nobody is booked on another's time, and leases end before it starts."""

import json
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.share import shell_lease
from gpuyard.share.service.caller import Caller, this_process
from gpuyard.share.service.desk import OwnDesk
from gpuyard.share.store.broker import Broker
from gpuyard.share.store.clock import Clock, stamp
from gpuyard.share.store.lease import Lease, LeaseRequest, NoneFree
from gpuyard.share.turns.calendar import Reservation, arranged
from gpuyard.share.turns.reservations import Wish
from gpuyard.share.turns.when import parse_when, shown
from tests.conftest import Cli
from tests.share.conftest import Start, holders
from tests.share.test_faults import _holding
from tests.share.test_lease import started, waits_for

HOUR = 3600.0
Who = Callable[[], dict[str, Any]]
ANNA = Caller(4_000_001, 4_000_001, os.getpid())


@pytest.fixture
def broker(share: Path) -> Iterator[Broker]:
    opened = Broker(share)
    yield opened
    opened.close()


@pytest.fixture
def lease(broker: Broker) -> Iterator[Callable[..., Lease]]:
    """Asks for one that does not wait, as this user."""
    locks = []

    def ask(
        count: int = 1, *, now: bool = True, caller: Caller | None = None, **more: Any
    ) -> Lease:
        turn, lock = broker.ask(
            caller or this_process(), LeaseRequest(count=count, waits=not now, **more)
        )
        locks.append(lock)
        return turn.lease

    yield ask
    for lock in locks:
        os.close(lock)


_base = [0.0]


@pytest.fixture(autouse=True)
def _the_same_now() -> None:
    """What touches shall touch exactly."""
    _base[0] = time.time()


def wish(count: int, start: float, hours: float, *gpus: int) -> Wish:
    """Hours from now."""
    now = _base[0]
    return Wish(count, now + start * HOUR, now + (start + hours) * HOUR, gpus)


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("Mon 18:00", "2026-11-16 18:00"),
        ("monday 9:00", "2026-11-23 09:00"),  # this Monday's is over
        ("Mon 12:00", "2026-11-23 12:00"),
        ("tue 0:05", "2026-11-17 00:05"),
        ("Sunday 23:59", "2026-11-22 23:59"),
        ("18:00", "2026-11-16 18:00"),
        ("today 18:00", "2026-11-16 18:00"),
        ("tomorrow 8:00", "2026-11-17 08:00"),
        ("2026-11-20 09:00", "2026-11-20 09:00"),
        ("2026-11-20T09:00", "2026-11-20 09:00"),
        (" now ", "2026-11-16 12:00"),
    ],
)
def test_moments_are_read_as_people_write_them(written: str, meant: str) -> None:
    assert parse_when(written, at("2026-11-16 12:00")) == at(meant)


def test_the_end_of_a_lease_is_shown_as_the_reservation_was_asked_for() -> None:
    """It is counted by another clock, and a millisecond before six is six."""
    six = datetime(2026, 11, 18, 18, 0).astimezone().timestamp()
    for moment in (six - 0.004, six, six + 0.4):
        assert shown(moment) == "Wed 2026-11-18 18:00"
        assert stamp(moment) == datetime.fromtimestamp(six, UTC).isoformat()


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        (
            "11:59",
            "'11:59' is in the past; it is Mon 2026-11-16 12:00 now; write it like 'tomorrow",
        ),
        ("2026-11-16 12:00", "is in the past"),
        ("2025-01-01 12:00", "is in the past"),
        ("2030-01-01 12:00", "more than 366 days away"),
        ("m 18:00", "expected a time like 'Mon 18:00'"),
        ("Mon", "expected a time like"),
        ("25:00", "expected a time like"),
        ("12:60", "expected a time like"),
        ("2026-02-30 12:00", "expected a time like"),
        ("", "expected a time like"),
    ],
)
def test_what_is_no_moment_to_come_is_a_sentence(written: str, sentence: str) -> None:
    with pytest.raises(UserMistake, match=sentence.replace("(", r"\(")):
        parse_when(written, at("2026-11-16 12:00"))


def test_a_time_that_the_clock_leaves_out_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        with pytest.raises(UserMistake, match="the clock is set forward"):
            parse_when("2026-03-29 02:30", at("2026-03-01 12:00"))
        assert parse_when("2026-03-29 03:30", at("2026-03-01 12:00")) == 1774747800.0
    finally:
        monkeypatch.undo()
        time.tzset()


def test_reservations_never_exceed_the_gpus_at_any_time(broker: Broker) -> None:
    """Each touches the next, and the sum over all is 20 of 8."""
    for start, hours, count in ((10, 2, 6), (12, 2, 8), (8, 2, 4), (11, 1, 2)):
        broker.reserve(ANNA, wish(count, start, hours))
    with pytest.raises(GpuyardError, match="6 of 8 are reserved already"):
        broker.reserve(ANNA, wish(3, 9, 1.5))
    broker.reserve(ANNA, wish(2, 10, 1))
    with pytest.raises(GpuyardError, match="8 of 8 are reserved already"):
        broker.reserve(ANNA, wish(1, 9, 1.01))
    broker.reserve(ANNA, wish(4, 9, 0.99))
    _check_no_overlap(broker.state().reservations)


def test_room_is_found_wherever_the_time_line_has_it(broker: Broker) -> None:
    """Placed one after the other they block each other; all together they fit."""
    broker.reserve(ANNA, wish(4, 1, 2))
    broker.reserve(ANNA, wish(4, 4, 2))
    broker.reserve(ANNA, wish(4, 2, 3))
    broker.reserve(ANNA, wish(4, 3, 1))
    broker.reserve(ANNA, wish(4, 5, 8))
    broker.reserve(ANNA, wish(4, 6, 9))
    _check_no_overlap(broker.state().reservations)


def test_any_count_that_fits_the_time_line_is_placed() -> None:
    """Where nobody names GPUs the check of the counts alone decides, for every order of asking."""
    import random

    random.seed(5)
    for _ in range(200):
        made: list[Reservation] = []
        for number in range(12):
            start = float(random.randrange(20))
            new = Reservation(
                number,
                str(number),
                "reservation",
                1,
                "a",
                random.randrange(1, 5),
                (),
                (),
                start,
                start + random.randrange(1, 8),
            )
            fits = all(
                sum(one.count for one in (*made, new) if one.start <= time < one.ends) <= 8
                for time in range(30)
                if new.start <= time < new.ends
            )
            found = arranged(
                new,
                made,
                gpus=range(8),
                rates={},
                is_held=lambda *_: False,
                now=-1.0,
            )
            assert (found is not None) == fits
            made = found or made
            _check_no_overlap(made)


def _check_no_overlap(reservations: Any) -> None:
    for one in reservations:
        assert len(one.gpus) == one.count
        for other in reservations:
            if one.id != other.id and one.overlaps(other.start, other.ends):
                assert not set(one.gpus) & set(other.gpus)


def test_named_gpus_are_kept_and_refused_by_name(broker: Broker) -> None:
    loose = broker.reserve(ANNA, wish(4, 1, 2))
    assert loose.gpus == (0, 1, 2, 3)
    named = broker.reserve(ANNA, wish(2, 1, 2, 0, 1))  # the loose one moves
    assert named.gpus == (0, 1)
    _check_no_overlap(broker.state().reservations)
    with pytest.raises(GpuyardError, match=r"GPU 1 is reserved for 4000001 from"):
        broker.reserve(ANNA, wish(2, 2, 2, 1, 7))


def test_a_lease_that_would_reach_into_a_reservation_gets_others(
    broker: Broker, lease: Callable[..., Lease]
) -> None:
    broker.reserve(ANNA, wish(4, 2, 10, 0, 1, 2, 3))
    assert lease(4, seconds=3 * HOUR).gpus == (4, 5, 6, 7)
    with pytest.raises(NoneFree, match="or has reserved them"):
        lease(1, seconds=3 * HOUR)
    short = lease(1, seconds=1 * HOUR)
    assert short.gpus == (0,)
    waiting = lease(1, now=False, seconds=3 * HOUR)
    assert not waiting.held
    # it waits for a lease to end, and not for the reservation
    (turn, _) = (broker.claim(this_process(), waiting.id), None)
    assert turn.expected_seconds == pytest.approx(3 * HOUR, abs=5)


def test_a_lease_without_an_end_is_cut_where_there_is_nothing_better(
    broker: Broker, lease: Callable[..., Lease]
) -> None:
    broker.reserve(ANNA, wish(4, 2, 10, 0, 1, 2, 3))
    broker.reserve(ANNA, wish(2, 5, 1, 4, 5))
    first = lease(1, now=False)
    assert (first.gpus, first.until_boot) == ((6,), None)
    second = lease(2, now=False)
    assert second.gpus == (4, 5)
    assert second.until_boot == pytest.approx(Clock().boot() + 5 * HOUR, abs=5)
    with pytest.raises(NoneFree, match=r"is reserved from .* say how long you need it with --for"):
        lease(2)


def test_in_its_time_reserved_gpus_are_the_reservers_alone(
    broker: Broker, lease: Callable[..., Lease]
) -> None:
    broker.reserve(ANNA, wish(4, 0, 10, 4, 5, 6, 7))
    ahead = lease(8, now=False)  # waits, and blocks only what it may use
    assert not ahead.held
    assert lease(2, caller=ANNA).gpus == (4, 5)
    assert lease(2, caller=ANNA, seconds=5 * HOUR).gpus == (6, 7)
    with pytest.raises(NoneFree):
        lease(1, caller=replace(ANNA, uid=ANNA.uid + 1), seconds=11 * HOUR)


def test_short_leases_use_the_time_that_a_larger_one_cant(
    broker: Broker, lease: Callable[..., Lease]
) -> None:
    """All 8 are reserved in two hours: who needs three waits for the end, and keeps nobody from an hour before."""
    broker.reserve(ANNA, wish(8, 2, 2))
    large = lease(8, now=False, seconds=3 * HOUR)
    assert not large.held
    assert broker.claim(this_process(), large.id).expected_seconds == pytest.approx(4 * HOUR, abs=5)
    assert lease(8, seconds=1 * HOUR).held


def test_running_leases_are_cut_with_notice_and_promised_ends_are_kept(
    broker: Broker, lease: Callable[..., Lease]
) -> None:
    promised = lease(4, seconds=6 * HOUR)
    unlimited = lease(4)
    for start, gpus in ((2, promised.gpus), (0.5, unlimited.gpus)):
        with pytest.raises(GpuyardError, match="is leased by"):
            broker.reserve(ANNA, wish(4, start, 1, *gpus))
    made = broker.reserve(ANNA, wish(2, 2, 1))
    assert made.gpus == (4, 5)
    held = {one.id: one for one in broker.state().held}
    assert held[promised.id].until_boot == promised.until_boot
    boot = Clock().boot()
    assert held[unlimited.id].until_boot == pytest.approx(boot + 2 * HOUR, abs=5)
    broker.reserve(ANNA, wish(4, 1.5, 0.4, 4, 5, 6, 7))
    assert broker.state().held[1].until_boot == pytest.approx(boot + 1.5 * HOUR, abs=5)
    for one in broker.state().reservations:
        broker.cancel(ANNA, one.id)
    assert broker.state().held[1].until_boot is None


def test_only_the_reserver_and_admins_cancel_and_drain(broker: Broker) -> None:
    made = broker.reserve(this_process(), wish(1, 1, 1))
    with pytest.raises(GpuyardError, match="members of the group gpuyard-admin can cancel it"):
        broker.cancel(ANNA, made.id)
    broker.cancel(this_process(), made.id)
    with pytest.raises(UserMistake, match="there is no reservation"):
        broker.cancel(this_process(), made.id)
    for admins in (lambda: broker.drain(ANNA, (), None), lambda: broker.resume(ANNA)):
        with pytest.raises(GpuyardError, match="only root and members of the group"):
            admins()


def test_an_overdue_lease_is_ended_for_the_reserver(share: Path) -> None:
    """By the wall clock of two hours later the reservation has started; the lease ends by its own clock."""
    broker = Broker(share)
    holder, lock = _holding(broker, LeaseRequest(count=8))
    os.close(lock)
    broker.reserve(ANNA, wish(8, 1.1, 5))
    with broker.database.transaction() as connection:  # as if the time had passed
        connection.execute("UPDATE leases SET until_boot = ?", (Clock().boot() - 1,))
    later = Broker(share, clock=Clock(wall_offset=2 * HOUR))
    turn, other = later.ask(ANNA, LeaseRequest(count=8, waits=False))
    assert turn.lease.held and holder.wait(60) == -signal.SIGTERM
    os.close(other)
    for opened in (broker, later):
        opened.close()


def test_a_running_command_is_told_of_its_new_end(
    start: Start, broker: Broker, monkeypatch: pytest.MonkeyPatch, cli: Cli, who: Who
) -> None:
    leased = started(start, "8")
    broker.reserve(ANNA, wish(1, 1.5, 1))
    (until,) = {gpu["leases"][0]["until"] for gpu in who()["gpus"]}
    assert until is not None
    leased.send_signal(
        signal.SIGUSR1
    )  # anything that wakes the launcher; else it looks every minute
    leased.wait(60)
    assert "ends at" in leased.communicate()[1]


def test_a_shell_with_a_lease_is_told_of_its_new_end(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, share: Path
) -> None:
    monkeypatch.setattr(shell_lease, "_LOOK_SECONDS", 0.05)
    shell = subprocess.Popen(["sleep", "60"])
    seen, terminal = os.openpty()
    desk = OwnDesk(share)
    turn, lock = desk.ask(LeaseRequest(count=8))
    handle = os.pidfd_open(shell.pid)
    words = (desk, turn.lease, lock, handle, terminal)
    holder = threading.Thread(target=shell_lease._wait, args=words)
    holder.start()
    made = broker.reserve(ANNA, wish(1, 1.5, 1))
    assert b"ends at" in _read_all(seen, b"reserved from then on")
    broker.cancel(ANNA, made.id)
    assert b"has no end any more" in _read_all(seen, b"any more")
    shell.kill()
    shell.wait()
    holder.join(10)
    assert not holder.is_alive()
    for descriptor in (seen, terminal, lock, handle):
        os.close(descriptor)
    desk.close()


def _read_all(terminal: int, until: bytes) -> bytes:
    said = b""
    while until not in said:
        assert select.select([terminal], [], [], 20)[0], said
        said += os.read(terminal, 1000)
    return said


def test_a_reservation_by_command_line(cli: Cli, start: Start, who: Who) -> None:
    made = json.loads(
        cli("reserve", "2", "--from", "tomorrow 8:00", "--for", "20h", "--json").stdout
    )
    assert made["count"] == 2 and made["gpus"] == [0, 1]
    listed = json.loads(cli("reserve", "list", "--json").stdout)["reservations"]
    assert listed == [made] == who()["reservations"]
    said = cli("reserve", "list").stdout
    assert "08:00–24:00" in said and "00:00–04:00" in said and made["id"] in said
    assert "tomorrow" not in said and made["id"] in cli("who").stdout
    assert "is cancelled" in cli("reserve", "cancel", made["id"]).stdout
    assert "Nothing is reserved." in cli("reserve", "list").stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("9", "--from", "tomorrow 8:00", "--for", "1h"), "9 GPUs were requested"),
        (("--gpus", "8", "--from", "tomorrow 8:00", "--for", "1h"), "there is no GPU 8"),
        (("1", "--from", "2020-01-01 8:00", "--for", "1h"), "is in the past"),
        (("1", "--from", "soon", "--for", "1h"), "expected a time like"),
        (("1", "--from", "tomorrow 8:00", "--for", "0s"), "lasts more than 0 seconds"),
        (("1", "--from", "tomorrow 8:00"), "write it like"),
        (("cancel",), "write it like"),
        (("cancel", "nothing"), "there is no reservation 'nothing'"),
    ],
)
def test_what_is_wrong_is_a_sentence(
    share: Path, cli: Cli, arguments: tuple[str, ...], sentence: str
) -> None:
    assert sentence in " ".join(cli("reserve", *arguments, status=2).stderr.split())


def test_drained_gpus_are_not_leased_and_running_work_goes_on(
    cli: Cli, start: Start, who: Who
) -> None:
    leased = started(start, "2")
    (id_,) = {id_ for ids in holders(who()).values() for id_ in ids}
    said = cli("share", "drain", "--gpus", "0,1,2,3").stderr
    assert "no new leases until `gpuyard share resume`" in said and id_ in said
    assert [gpu["drained"] for gpu in who()["gpus"]] == [True] * 4 + [False] * 4
    assert "drained" in cli("who").stdout
    assert start("lease", "5", "--now", "--", "true").wait(60) == 75
    assert start("lease", "4", "--now", "--", "true").wait(60) == 0
    waiting = start("lease", "5", "--", "true")
    waits_for(lambda: who()["queue"])
    assert leased.poll() is None
    assert "can be leased again" in cli("share", "resume").stderr
    assert waiting.wait(60) == 0
    cli("share", "drain", "--until", "tomorrow 8:00")
    assert start("lease", "1", "--now", "--for", "1min", "--", "true").wait(60) == 75
