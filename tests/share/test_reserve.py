"""Reservations: they never overlap, and leases of other users end before they start."""

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
from gpuyard.share.broker import Broker
from gpuyard.share.caller import Caller, this_process
from gpuyard.share.client import LocalClient
from gpuyard.share.clock import Clock, iso_timestamp
from gpuyard.share.models import Lease, LeaseRequest, NoneFree, Reservation, ReservationRequest
from gpuyard.share.reservations import place_reservations
from gpuyard.share.timeparse import format_time, parse_time
from tests.conftest import Cli
from tests.share.conftest import Start, acting_as, holders
from tests.share.test_faults import start_holder
from tests.share.test_lease import start_lease, waits_for

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
    """Request a lease that does not wait, as this user by default."""
    locks = []

    def ask(
        count: int = 1, *, now: bool = True, caller: Caller | None = None, **more: Any
    ) -> Lease:
        request = LeaseRequest(count=count, waits=not now, **more)
        status, lock = acting_as(broker, caller or this_process()).ask(request)
        locks.append(lock)
        return status.lease

    yield ask
    for lock in locks:
        os.close(lock)


_base = [0.0]


@pytest.fixture(autouse=True)
def freeze_time() -> None:
    """Use the same current time for all reservations of a test, so that adjacent ones touch exactly."""
    _base[0] = time.time()


def create_request(count: int, start: float, hours: float, *gpus: int) -> ReservationRequest:
    """Build a request that starts in `start` hours."""
    now = _base[0]
    return ReservationRequest(count, now + start * HOUR, now + (start + hours) * HOUR, gpus)


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
def test_times_are_parsed_as_people_write_them(written: str, meant: str) -> None:
    assert parse_time(written, at("2026-11-16 12:00")) == at(meant)


def test_the_end_of_a_lease_is_shown_as_the_start_of_the_reservation() -> None:
    """Another clock measures it, so a millisecond before six is six."""
    six = datetime(2026, 11, 18, 18, 0).astimezone().timestamp()
    for moment in (six - 0.004, six, six + 0.4):
        assert format_time(moment) == "Wed 2026-11-18 18:00"
        assert iso_timestamp(moment) == datetime.fromtimestamp(six, UTC).isoformat()


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
def test_invalid_and_past_times_are_refused(written: str, sentence: str) -> None:
    with pytest.raises(UserMistake, match=sentence.replace("(", r"\(")):
        parse_time(written, at("2026-11-16 12:00"))


def test_a_time_that_daylight_saving_skips_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        with pytest.raises(UserMistake, match="the clock is set forward"):
            parse_time("2026-03-29 02:30", at("2026-03-01 12:00"))
        assert parse_time("2026-03-29 03:30", at("2026-03-01 12:00")) == 1774747800.0
    finally:
        monkeypatch.undo()
        time.tzset()


def test_reservations_never_exceed_the_gpus_at_any_time(broker: Broker) -> None:
    """Each reservation touches the next, and their sum is 20 of 8 GPUs."""
    for start, hours, count in ((10, 2, 6), (12, 2, 8), (8, 2, 4), (11, 1, 2)):
        acting_as(broker, ANNA).reserve(create_request(count, start, hours))
    with pytest.raises(GpuyardError, match="6 of 8"):
        acting_as(broker, ANNA).reserve(create_request(3, 9, 1.5))
    acting_as(broker, ANNA).reserve(create_request(2, 10, 1))
    with pytest.raises(GpuyardError, match="8 of 8"):
        acting_as(broker, ANNA).reserve(create_request(1, 9, 1.01))
    acting_as(broker, ANNA).reserve(create_request(4, 9, 0.99))
    _check_no_overlap(broker.state().reservations)


def test_movable_reservations_make_room(broker: Broker) -> None:
    """Placed one after the other, they block each other; placed together, they fit."""
    acting_as(broker, ANNA).reserve(create_request(4, 1, 2))
    acting_as(broker, ANNA).reserve(create_request(4, 4, 2))
    acting_as(broker, ANNA).reserve(create_request(4, 2, 3))
    acting_as(broker, ANNA).reserve(create_request(4, 3, 1))
    acting_as(broker, ANNA).reserve(create_request(4, 5, 8))
    acting_as(broker, ANNA).reserve(create_request(4, 6, 9))
    _check_no_overlap(broker.state().reservations)


def test_every_set_of_reservations_that_fits_is_placed() -> None:
    """If no reservation names GPUs, only the counts decide, in every order of requests."""
    import random

    random.seed(5)
    for _ in range(200):
        reservations: list[Reservation] = []
        for number in range(12):
            start = float(random.randrange(20))
            new = Reservation(
                number,
                str(number),
                "reservations",
                1,
                "a",
                random.randrange(1, 5),
                (),
                (),
                start,
                start + random.randrange(1, 8),
            )
            fits = all(
                sum(r.count for r in (*reservations, new) if r.start <= time < r.end_or_infinity)
                <= 8
                for time in range(30)
                if new.start <= time < new.end_or_infinity
            )
            placed = place_reservations(
                new,
                reservations,
                gpus=range(8),
                rates={},
                is_held=lambda *_: False,
                now=-1.0,
            )
            assert (placed is not None) == fits
            reservations = placed or reservations
            _check_no_overlap(reservations)


def _check_no_overlap(reservations: Any) -> None:
    for reservation in reservations:
        assert len(reservation.gpus) == reservation.count
        for other in reservations:
            if reservation.id != other.id and reservation.overlaps(
                other.start, other.end_or_infinity
            ):
                assert not set(reservation.gpus) & set(other.gpus)


def test_named_gpus_are_kept_and_refused_by_name(broker: Broker) -> None:
    loose = acting_as(broker, ANNA).reserve(create_request(4, 1, 2))
    assert loose.gpus == (0, 1, 2, 3)
    named = acting_as(broker, ANNA).reserve(create_request(2, 1, 2, 0, 1))  # the loose one moves
    assert named.gpus == (0, 1)
    _check_no_overlap(broker.state().reservations)
    with pytest.raises(GpuyardError, match=r"GPU 1 is reserved for 4000001 from"):
        acting_as(broker, ANNA).reserve(create_request(2, 2, 2, 1, 7))


def test_a_lease_that_would_overlap_a_reservation_gets_other_gpus(
    broker: Broker, lease: Callable[..., Lease]
) -> None:
    acting_as(broker, ANNA).reserve(create_request(4, 2, 10, 0, 1, 2, 3))
    assert lease(4, seconds=3 * HOUR).gpus == (4, 5, 6, 7)
    with pytest.raises(NoneFree, match="reserved"):
        lease(1, seconds=3 * HOUR)
    short = lease(1, seconds=1 * HOUR)
    assert short.gpus == (0,)
    waiting = lease(1, now=False, seconds=3 * HOUR)
    assert not waiting.held
    # it waits for the end of a lease, not for the reservation
    (status, _) = (broker.claim(waiting.id), None)
    assert status.expected_seconds == pytest.approx(3 * HOUR, abs=5)


def test_a_lease_without_a_time_limit_ends_before_a_reservation(
    broker: Broker, lease: Callable[..., Lease]
) -> None:
    acting_as(broker, ANNA).reserve(create_request(4, 2, 10, 0, 1, 2, 3))
    acting_as(broker, ANNA).reserve(create_request(2, 5, 1, 4, 5))
    first = lease(1, now=False)
    assert (first.gpus, first.until_boot) == ((6,), None)
    second = lease(2, now=False)
    assert second.gpus == (4, 5)
    assert second.until_boot == pytest.approx(Clock().boot() + 5 * HOUR, abs=5)
    with pytest.raises(NoneFree, match=r"is reserved from .*--for"):
        lease(2)


def test_reserved_gpus_are_leased_only_to_their_user(
    broker: Broker, lease: Callable[..., Lease]
) -> None:
    acting_as(broker, ANNA).reserve(create_request(4, 0, 10, 4, 5, 6, 7))
    ahead = lease(8, now=False)  # waits, and blocks only what it may use
    assert not ahead.held
    assert lease(2, caller=ANNA).gpus == (4, 5)
    assert lease(2, caller=ANNA, seconds=5 * HOUR).gpus == (6, 7)
    with pytest.raises(NoneFree):
        lease(1, caller=replace(ANNA, uid=ANNA.uid + 1), seconds=11 * HOUR)


def test_short_leases_use_time_that_a_larger_one_cannot(
    broker: Broker, lease: Callable[..., Lease]
) -> None:
    """All 8 GPUs are reserved in two hours: a lease of three hours waits, but does not block one of one hour."""
    acting_as(broker, ANNA).reserve(create_request(8, 2, 2))
    large = lease(8, now=False, seconds=3 * HOUR)
    assert not large.held
    assert broker.claim(large.id).expected_seconds == pytest.approx(4 * HOUR, abs=5)
    assert lease(8, seconds=1 * HOUR).held


def test_reservations_end_running_leases_with_notice_and_keep_time_limits(
    broker: Broker, lease: Callable[..., Lease]
) -> None:
    promised = lease(4, seconds=6 * HOUR)
    unlimited = lease(4)
    for start, gpus in ((2, promised.gpus), (0.5, unlimited.gpus)):
        with pytest.raises(GpuyardError, match="is leased by"):
            acting_as(broker, ANNA).reserve(create_request(4, start, 1, *gpus))
    reservation = acting_as(broker, ANNA).reserve(create_request(2, 2, 1))
    assert reservation.gpus == (4, 5)
    held = {lease.id: lease for lease in broker.state().held}
    assert held[promised.id].until_boot == promised.until_boot
    boot = Clock().boot()
    assert held[unlimited.id].until_boot == pytest.approx(boot + 2 * HOUR, abs=5)
    acting_as(broker, ANNA).reserve(create_request(4, 1.5, 0.4, 4, 5, 6, 7))
    assert broker.state().held[1].until_boot == pytest.approx(boot + 1.5 * HOUR, abs=5)
    for reservation in broker.state().reservations:
        acting_as(broker, ANNA).cancel(reservation.id)
    assert broker.state().held[1].until_boot is None


def test_only_the_owner_and_admins_cancel_and_drain(broker: Broker) -> None:
    reservation = broker.reserve(create_request(1, 1, 1))
    with pytest.raises(GpuyardError, match="members of the group gpuyard-admin can cancel it"):
        acting_as(broker, ANNA).cancel(reservation.id)
    broker.cancel(reservation.id)
    with pytest.raises(UserMistake, match=reservation.id):
        broker.cancel(reservation.id)
    for admins in (
        lambda: acting_as(broker, ANNA).drain((), None),
        lambda: acting_as(broker, ANNA).resume(),
    ):
        with pytest.raises(GpuyardError, match="only root and members of the group"):
            admins()


def test_an_overdue_lease_is_stopped_for_a_reservation(share: Path) -> None:
    """Two hours later on the wall clock, the reservation has started; the lease ends by the boot clock."""
    broker = Broker(share)
    holder, lock = start_holder(broker, LeaseRequest(count=8))
    os.close(lock)
    acting_as(broker, ANNA).reserve(create_request(8, 1.1, 5))
    with broker.store.transaction() as connection:  # as if the time had passed
        connection.execute("UPDATE leases SET until_boot = ?", (Clock().boot() - 1,))
    later = Broker(share, clock=Clock(wall_offset=2 * HOUR))
    status, other = acting_as(later, ANNA).ask(LeaseRequest(count=8, waits=False))
    assert status.lease.held and holder.wait(60) == -signal.SIGTERM
    os.close(other)
    for opened in (broker, later):
        opened.close()


def test_the_launcher_reports_a_new_end(
    start: Start, broker: Broker, monkeypatch: pytest.MonkeyPatch, cli: Cli, who: Who
) -> None:
    leased = start_lease(start, "8")
    acting_as(broker, ANNA).reserve(create_request(1, 1.5, 1))
    (until,) = {gpu["leases"][0]["until"] for gpu in who()["gpus"]}
    assert until is not None
    leased.send_signal(
        signal.SIGUSR1
    )  # anything that wakes the launcher; else it looks every minute
    leased.wait(60)
    assert "ends at" in leased.communicate()[1]


def test_the_holder_of_a_shell_lease_reports_a_new_end(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, share: Path
) -> None:
    monkeypatch.setattr(shell_lease, "_CHECK_SECONDS", 0.05)
    shell = subprocess.Popen(["sleep", "60"])
    controller, terminal = os.openpty()
    client = LocalClient(share)
    status, lock = client.ask(LeaseRequest(count=8))
    handle = os.pidfd_open(shell.pid)
    words = (client, status.lease, lock, handle, terminal)
    holder = threading.Thread(target=shell_lease._wait, args=words)
    holder.start()
    reservation = acting_as(broker, ANNA).reserve(create_request(1, 1.5, 1))
    assert b"ends at" in _read_all(controller, b"reserved from then on")
    acting_as(broker, ANNA).cancel(reservation.id)
    assert b"ends at" not in _read_all(controller, b"no longer has a fixed end")
    shell.kill()
    shell.wait()
    holder.join(10)
    assert not holder.is_alive()
    for descriptor in (controller, terminal, lock, handle):
        os.close(descriptor)
    client.close()


def _read_all(terminal: int, until: bytes) -> bytes:
    output = b""
    while until not in output:
        assert select.select([terminal], [], [], 20)[0], output
        output += os.read(terminal, 1000)
    return output


def test_reserve_list_and_cancel_on_the_command_line(cli: Cli, start: Start, who: Who) -> None:
    reservation = json.loads(
        cli("reserve", "2", "--start", "tomorrow 8:00", "--for", "20h", "--json").stdout
    )
    assert reservation["count"] == 2 and reservation["gpus"] == [0, 1]
    listed = json.loads(cli("reserve", "list", "--json").stdout)["reservations"]
    assert listed == [reservation] == who()["reservations"]
    output = cli("reserve", "list").stdout
    assert "08:00–24:00" in output and "00:00–04:00" in output and reservation["id"] in output
    assert "tomorrow" not in output and reservation["id"] in cli("who").stdout
    assert reservation["id"] in cli("reserve", "cancel", reservation["id"]).stdout
    assert json.loads(cli("reserve", "list", "--json").stdout) == {"reservations": []}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("9", "--start", "tomorrow 8:00", "--for", "1h"), "9 GPUs were requested"),
        (("--gpu-ids", "8", "--start", "tomorrow 8:00", "--for", "1h"), "GPU 8"),
        (("1", "--start", "2020-01-01 8:00", "--for", "1h"), "is in the past"),
        (("1", "--start", "soon", "--for", "1h"), "expected a time like"),
        (("1", "--start", "tomorrow 8:00", "--for", "0s"), "more than 0 seconds"),
        (("1", "--start", "tomorrow 8:00"), "Missing option '--for'"),
        (("cancel",), "Missing argument 'ID'"),
        (("cancel", "nothing"), "'nothing'"),
    ],
)
def test_mistakes_are_reported(
    share: Path, cli: Cli, arguments: tuple[str, ...], sentence: str
) -> None:
    assert sentence in " ".join(cli("reserve", *arguments, status=2).stderr.split())


def test_drained_gpus_are_not_leased_and_running_work_continues(
    cli: Cli, start: Start, who: Who
) -> None:
    leased = start_lease(start, "2")
    (id_,) = {id_ for ids in holders(who()).values() for id_ in ids}
    output = cli("share", "drain", "--gpu-ids", "0,1,2,3").stderr
    assert "no new leases until `gpuyard share resume`" in output and id_ in output
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
