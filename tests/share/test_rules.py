"""Priorities, fair share, and quotas, for real users and groups."""

import json
import os
import pwd
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import gpuyard as gy
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.share.broker import Broker
from gpuyard.share.calendar import Calendar
from gpuyard.share.caller import Caller, groups_of, this_process
from gpuyard.share.config import Rules, config_file, read_config
from gpuyard.share.fair_share import PastUse, recent_use
from gpuyard.share.models import (
    WHOLE,
    Lease,
    LeaseRequest,
    NoneFree,
    ReservationRequest,
    ShareState,
)
from gpuyard.share.queue import Allowance, choose_gpus_in_turn, expected_start
from gpuyard.share.service import parse_request, perform
from tests.conftest import Cli
from tests.share.conftest import acting_as

HOUR = 3600.0
ME = this_process()
GROUP = min(groups_of(ME.uid), default="")
OTHER = next(
    Caller(account.pw_uid, account.pw_gid, os.getpid())
    for account in pwd.getpwall()
    if account.pw_uid != ME.uid and GROUP not in groups_of(account.pw_uid)
)


@pytest.fixture
def broker(share: Path) -> Iterator[Broker]:
    opened = Broker(share)
    yield opened
    opened.close()


def test_a_quota_makes_only_its_group_wait(broker: Broker) -> None:
    broker.set_rules(Rules(quotas={GROUP: 2}))
    locks = [broker.ask(LeaseRequest(count=2))[1]]
    with pytest.raises(NoneFree, match=f"the group {GROUP} has used up its quota"):
        broker.ask(LeaseRequest(waits=False))
    with pytest.raises(UserMistake, match=f"{GROUP} has a quota of 2 GPUs"):
        broker.ask(LeaseRequest(count=3))
    waiting, lock = broker.ask(LeaseRequest())
    assert not waiting.lease.held and "quota" in waiting.reason
    other, more = acting_as(broker, OTHER).ask(LeaseRequest(count=6, waits=False))
    assert other.lease.held
    for descriptor in (*locks, lock, more):
        os.close(descriptor)


def test_a_quota_holds_for_reservations_at_every_time(broker: Broker) -> None:
    """Otherwise a group could block GPUs that it cannot use itself."""
    broker.set_rules(Rules(quotas={GROUP: 2}))
    now = broker.store.clock.wall()

    def reserve(caller: Caller, count: int, start: float, end: float) -> None:
        acting_as(broker, caller).reserve(
            ReservationRequest(count, now + start * HOUR, now + end * HOUR)
        )

    with pytest.raises(GpuyardError, match=f"the group {GROUP} has a quota of 2 GPUs at once"):
        reserve(ME, 3, 10, 12)
    reserve(ME, 1, 10, 12)
    reserve(ME, 1, 11, 13)
    with pytest.raises(GpuyardError, match="of which 2 are reserved"):
        reserve(ME, 1, 8, 20)
    reserve(ME, 2, 13, 20)
    reserve(OTHER, 6, 8, 20)


def test_weekly_hours_count_past_use(broker: Broker) -> None:
    broker.set_rules(Rules(weekly_hours={GROUP: 10.0}))
    status, lock = broker.ask(LeaseRequest(count=1))
    broker.ask(LeaseRequest(count=1, waits=False))
    with broker.store.transaction() as connection:
        connection.execute(
            "UPDATE leases SET start = start - 36000 WHERE id = ?", (status.lease.id,)
        )
    with pytest.raises(NoneFree, match="quota"):
        broker.ask(LeaseRequest(waits=False))
    os.close(lock)


def test_priority_comes_first_then_less_recent_use(broker: Broker) -> None:
    broker.set_rules(Rules(half_life_seconds=86400.0))
    all_, lock = broker.ask(LeaseRequest(count=8))
    locks = [lock]
    with broker.store.transaction() as connection:
        connection.execute("UPDATE leases SET start = start - 3600 WHERE id = ?", (all_.lease.id,))
    locks.extend(acting_as(broker, caller).ask(LeaseRequest(count=8))[1] for caller in (ME, OTHER))
    assert [lease.uid for lease in broker.state().waiting] == [OTHER.uid, ME.uid]
    broker.set_rules(Rules(half_life_seconds=86400.0, priorities={GROUP: 10}))
    locks.append(broker.ask(LeaseRequest(count=7))[1])
    assert [lease.count for lease in broker.state().waiting] == [7, 8, 8]
    for descriptor in locks:
        os.close(descriptor)


def test_fair_share_by_group_counts_the_use_of_other_members(broker: Broker) -> None:
    broker.set_rules(Rules(half_life_seconds=86400.0, fair_share="group"))
    heavy, light = (Caller(uid, gid, os.getpid()) for uid, gid in ((70001, 0), (70002, 1)))
    newcomer = Caller(70003, heavy.gid, os.getpid())
    all_, lock = acting_as(broker, heavy).ask(LeaseRequest(count=8))
    with broker.store.transaction() as connection:
        connection.execute("UPDATE leases SET start = start - 3600 WHERE id = ?", (all_.lease.id,))
    locks = [
        lock,
        *(acting_as(broker, who).ask(LeaseRequest(count=8))[1] for who in (newcomer, light)),
    ]
    assert [lease.uid for lease in broker.state().waiting] == [light.uid, newcomer.uid]
    for descriptor in locks:
        os.close(descriptor)


def test_another_setup_keeps_every_setting_that_it_does_not_name(share: Path, cli: Cli) -> None:
    line = ("--fake-gpus", "4", "--topology", "nvlink-pairs", "--admin-group", "daemon")
    cli("share", "setup", *line, "--no-service")
    before = read_config(share)
    cli("share", "setup", "--no-service")
    assert read_config(share) == before
    assert (before.admin_group, len(before.gpus), before.grace_seconds) == ("daemon", 4, 0.5)
    cli("share", "setup", "--fake-gpus", "2", "--admin-group", "bin", "--no-service")
    assert (read_config(share).admin_group, len(read_config(share).gpus)) == ("bin", 2)


def test_use_halves_with_each_half_life(broker: Broker) -> None:
    status, lock = broker.ask(LeaseRequest(count=2))
    old = replace(status.lease, start=0.0, end=100.0)
    rules = Rules(half_life_seconds=1000.0)
    assert recent_use(rules, [old], 50.0 + 1000.0) == {ME.uid: pytest.approx(100.0, rel=1e-3)}
    assert recent_use(rules, [old], 50.0 + 3000.0) == {ME.uid: pytest.approx(25.0, rel=1e-3)}
    assert recent_use(Rules(), [old], 50.0) == {}
    os.close(lock)


def test_the_policy_is_set_shown_and_kept(share: Path, cli: Cli, broker: Broker) -> None:
    line = ("--half-life", "7d", "--quota", "students=2", "--group-priority", "staff=10")
    more = ("--idle-grace", "2h", "--on-violation", "warn", "--json")
    dry = json.loads(cli("share", "policy", *line, *more, "--dry-run").stdout)
    assert dry["quotas"] == {"students": 2} and dry["half_life_seconds"] == 604800
    assert json.loads(cli("share", "policy", "--json").stdout)["quotas"] == {}
    cli("share", "policy", *line, *more)
    cli("share", "setup", "--fake-gpus", "8", "--no-service")
    assert json.loads(cli("share", "policy", "--json").stdout) == dry
    assert "students=2" in cli("share", "policy").stdout
    cli("share", "policy", "--quota", "students=none")
    assert json.loads(cli("share", "policy", "--json").stdout)["quotas"] == {}
    for wrong in (("--quota", "students"), ("--quota", "a=x"), ("--on-violation", "shout")):
        cli("share", "policy", *wrong, status=2)
    with pytest.raises(GpuyardError, match="can set the policy"):
        acting_as(broker, OTHER).set_rules(Rules())


def test_of_two_admins_at_once_none_loses_a_change_silently(broker: Broker) -> None:
    before = broker.store.config.rules
    broker.set_rules(replace(before, quotas={"students": 2}), before)
    with pytest.raises(GpuyardError, match="share policy"):
        broker.set_rules(replace(before, job_policy="min-time"), before)
    after = read_config(broker.store.directory).rules
    assert (after.quotas, after.job_policy) == ({"students": 2}, before.job_policy)
    broker.set_rules(
        after, before
    )  # The same change again, as a client repeats it without an answer.


def test_audit_enforces_only_the_policy(share: Path, cli: Cli) -> None:
    import subprocess

    process = subprocess.Popen(("sleep", "60"))
    try:
        readings = {"3": {"pids": [process.pid]}}
        (share / "fake-readings.json").write_text(json.dumps(readings), encoding="utf-8")
        cli("share", "policy", "--stop-after", "1ms")
        for what in ("none", "warn"):
            cli("share", "policy", "--on-violation", what)
            for _ in range(2):
                cli("audit", "--enforce", status=1)
            assert process.poll() is None
        assert [row.pid for row in gy.audit()] == [process.pid]
        cli("share", "policy", "--on-violation", "stop")
        for _ in range(2):
            cli("audit", "--enforce", status=1)
        assert process.wait(60) < 0
    finally:
        process.kill()
        process.wait()


JUNK: tuple[dict[str, object], ...] = (
    {"do": "ask", "request": {"project": "\ud800"}},
    {"do": "ask", "request": {"command": "\ud800"}},
    {"do": "ask", "request": {"gpus": [True]}},
    {"do": "ask", "request": {"seconds": float("nan")}},
    {"do": "ask", "request": {"count": "1"}},
    {"do": "release", "lease_id": "\ud800"},
    {"do": "release", "lease_id": 1},
    {"do": "history_page", "after": 2**63},
    {"do": "drain", "gpus": [], "until": float("inf")},
    {"do": "drain", "gpus": [], "until": -1e308},
    {"do": "drain", "gpus": [], "until": float("nan")},
    {"do": "reserve", "request": {"count": 1, "start": 1e17, "end": 1e17 + 64}},
    {"do": "reserve", "request": {"count": 1, "start": 10**400, "end": 10**400 + 64}},
    {"do": "reserve", "request": {"count": 1, "start": float("nan"), "end": float("nan")}},
    {"do": "reserve", "request": {"count": 1}},
    {"do": "close"},
    {"do": "set_rules", "rules": {"priorities": {"staff": "x"}}},
    {"do": "set_rules", "rules": {"priorities": 1.5}},
    {"do": "set_rules", "rules": {"quotas": {"staff": float("nan")}}},
    {"do": "set_rules", "rules": {"weekly_hours": {"staff": [1]}}},
)


@pytest.mark.parametrize("junk", JUNK, ids=json.dumps)
def test_malformed_requests_are_refused_even_from_an_admin(
    share: Path, junk: dict[str, object]
) -> None:
    """They change neither the store nor the policy, which would affect everyone."""
    broker = Broker(share)
    before = config_file(share).read_bytes()
    with pytest.raises(UserMistake):
        perform(broker, parse_request(json.dumps(junk).encode()))
    assert config_file(share).read_bytes() == before and broker.state() == ShareState((), ())
    broker.close()


def test_a_long_history_is_summed_by_sqlite(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting clients need the sums many times per minute, and reading every row would slow down everyone."""
    now = broker.store.clock.wall()
    ask = broker.ask(LeaseRequest(count=8))[1]
    waiting = [acting_as(broker, caller).ask(LeaseRequest()) for caller in (ME, OTHER)]
    ended = [(number, number % 3, now - 40 * number, now - 33 * number) for number in range(9, 500)]
    with broker.store.transaction() as connection:
        connection.executemany(
            "INSERT INTO leases (number, id, uid, user, 'group', pid, process_start, boot_id, command, project,"
            " count, requested_gpus, parts, requested_at, gpus, start, 'end', end_reason) VALUES (?1, 'x' || ?1, ?2, 'u', 'g' || ?2,"
            " 1, 1, 'b', 'c', 'p', 2, '[]', 500000, 0, '[0, 1]', ?3, ?4, 'finished')",
            ended,
        )
    history = [lease for lease in broker.history_page() if lease.end_reason]
    for fair_share in ("user", "group"):
        rules = Rules(half_life_seconds=HOUR, fair_share=fair_share)
        used = PastUse().decayed(broker.store, rules, now)
        whose = {
            lease.uid: lease.group if fair_share == "group" else lease.uid for lease in history
        }
        assert {uid: used[str(name)] for uid, name in whose.items()} == pytest.approx(
            recent_use(rules, history, now)
        )
    week = PastUse().last_week(broker.store, now)
    assert week == pytest.approx(
        {uid: sum(end - start for _, who, start, end in ended if who == uid) for uid in range(3)}
    )
    broker.set_rules(Rules(half_life_seconds=HOUR, weekly_hours={GROUP: 1000.0}))
    read = []
    from_row = Lease.from_row

    def count(row: tuple[Any, ...]) -> Lease:
        read.append(row)
        return from_row(row)

    monkeypatch.setattr(Lease, "from_row", count)
    assert broker.claim(waiting[0][0].lease.id).position
    assert len(read) < 50
    for lock in (ask, waiting[0][1], waiting[1][1]):
        os.close(lock)


def test_one_user_can_hold_only_so_many_gpus(broker: Broker, share: Path) -> None:
    broker.set_rules(Rules(max_gpus_per_user=2))
    broker = Broker(share)
    other = acting_as(broker, OTHER)
    with pytest.raises(UserMistake, match=f"user {ME.user} has a quota of 2 GPUs"):
        broker.ask(LeaseRequest(count=3))
    _, lock = broker.ask(LeaseRequest(count=2))
    status, waiting_lock = broker.ask(LeaseRequest())
    assert not status.lease.held and ME.user in status.reason
    others, other_lock = other.ask(LeaseRequest(count=2, waits=False))
    assert others.lease.held, "another user is not affected"
    start = time.time() + HOUR
    broker.reserve(ReservationRequest(2, start, start + HOUR))
    with pytest.raises(GpuyardError, match="quota of 2"):
        broker.reserve(ReservationRequest(1, start, start + HOUR))
    for lock_ in (lock, waiting_lock, other_lock):
        os.close(lock_)
    broker.close()


def test_no_lease_is_longer_than_the_maximum(broker: Broker, share: Path, cli: Cli) -> None:
    broker.set_rules(Rules(max_lease_seconds=HOUR))
    refused = cli("lease", "1", "--for", "2h", "--", "true", status=2).stderr
    assert "60 min" in refused or "1 h" in refused
    assert "maximum" in cli("lease", "1", "--", "true").stderr
    start = time.time()
    broker = Broker(share)
    with pytest.raises(UserMistake, match="reservation"):
        broker.reserve(ReservationRequest(1, start, start + 2 * HOUR))
    status, lock = broker.ask(LeaseRequest())
    assert status.lease.seconds == HOUR and status.lease.until_boot is not None
    os.close(lock)
    broker.close()


def test_short_leases_start_if_they_do_not_delay_an_earlier_request(broker: Broker) -> None:
    minute = 60.0

    def is_held(count: int, minutes: float | None, *, waits: bool = True) -> bool:
        seconds = None if minutes is None else minutes * minute
        request = LeaseRequest(count=count, seconds=seconds, waits=waits)
        status, lock = broker.ask(request)
        locks.append(lock)
        return status.lease.held

    locks: list[int] = []
    assert is_held(6, 30)
    assert not is_held(4, 60)
    assert not is_held(1, 31) and not is_held(1, None), "they would delay the four GPUs"
    assert is_held(1, 10)
    assert is_held(1, 29, waits=False)
    assert not is_held(1, 10)
    for lock in locks:
        os.close(lock)


@pytest.mark.parametrize(("minutes", "passes"), [(None, True), (30, False)])
def test_others_pass_a_request_that_its_own_user_blocks_for_an_unlimited_time(
    broker: Broker, minutes: float | None, *, passes: bool
) -> None:
    """Otherwise, one GPU and a request for all of them would keep the rest from everyone."""
    other = acting_as(broker, OTHER)
    seconds = None if minutes is None else 60 * minutes
    leases = [broker.ask(LeaseRequest(seconds=seconds)), broker.ask(LeaseRequest(count=8))]
    leases.append(broker.ask(LeaseRequest()))
    assert not leases[-1][0].lease.held, "one's own requests keep their order"
    leases.append(other.ask(LeaseRequest()))
    assert leases[-1][0].lease.held == passes
    for _, lock in leases:
        os.close(lock)


def test_no_order_of_requests_delays_an_earlier_one() -> None:
    """Whatever a later request gets, the expected start of each earlier one stays the same."""
    rng = random.Random(0)
    granted_behind_others = 0
    for _ in range(300):
        held = [
            create_lease(i, 1, rng.choice([600.0, 1800.0, 3600.0]), gpus=(i,)) for i in range(6)
        ]
        free = {i: 0 if i < 6 else WHOLE for i in range(8)}
        times = [300.0, 900.0, 3000.0, None]
        earlier = [
            create_lease(10 + i, rng.randint(1, 8), rng.choice(times))
            for i in range(rng.randint(1, 4))
        ]
        last = create_lease(20, rng.randint(1, 2), rng.choice(times))
        order = [*earlier, last]
        more: dict[str, Any] = {"calendar": Calendar(), "now": 0.0}
        gpus = choose_gpus_in_turn(last, order, free, held, rates={}, allowance=Allowance(), **more)
        if gpus is None:
            continue
        granted_behind_others += 1
        after = {gpu: 0 if gpu in gpus else parts for gpu, parts in free.items()}
        now_held = [*held, replace(last, gpus=gpus, until_boot=last.seconds)]
        for position, request in enumerate(earlier, 1):
            before = expected_start(request, earlier[:position], free, held, **more)
            assert before == expected_start(request, earlier[:position], after, now_held, **more)
    assert granted_behind_others > 20


def create_lease(
    number: int, count: int, seconds: float | None, gpus: tuple[int, ...] = ()
) -> Lease:
    values: dict[str, Any] = dict.fromkeys(Lease.__dataclass_fields__)
    return Lease(
        **{
            **values,
            "number": number,
            "id": f"{number:08x}",
            "uid": number,
            "count": count,
            "parts": WHOLE,
            "requested_gpus": (),
            "gpus": gpus,
            "seconds": seconds,
            "until_boot": seconds if gpus else None,
        }
    )
