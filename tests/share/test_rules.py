"""Priorities, fair share and quotas, for real users and groups."""

import json
import os
import pwd
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.share.service.caller import Caller, this_process
from gpuyard.share.service.service import _request, perform
from gpuyard.share.store.broker import Broker
from gpuyard.share.store.config import config_file
from gpuyard.share.store.lease import Lease, LeaseRequest, NoneFree
from gpuyard.share.store.past_use import PastUse
from gpuyard.share.turns.queue import ShareState
from gpuyard.share.turns.reservations import Wish
from gpuyard.share.turns.rules import Rules, groups_of, recent_use
from tests.conftest import Cli

HOUR = 3600.0
ME = this_process()
GROUP = min(groups_of(ME.uid), default="")
OTHER = next(
    Caller(one.pw_uid, one.pw_gid, os.getpid())
    for one in pwd.getpwall()
    if one.pw_uid != ME.uid and GROUP not in groups_of(one.pw_uid)
)


@pytest.fixture
def broker(share: Path) -> Iterator[Broker]:
    opened = Broker(share)
    yield opened
    opened.close()


def test_a_quota_makes_a_group_wait_and_nobody_else(broker: Broker) -> None:
    broker.set_rules(ME, Rules(quotas={GROUP: 2}))
    locks = [broker.ask(ME, LeaseRequest(count=2))[1]]
    with pytest.raises(NoneFree, match=f"the group {GROUP} has used up its quota"):
        broker.ask(ME, LeaseRequest(waits=False))
    with pytest.raises(UserMistake, match="has a quota of 2 GPUs at once; ask for fewer"):
        broker.ask(ME, LeaseRequest(count=3))
    waiting, lock = broker.ask(ME, LeaseRequest())
    assert not waiting.lease.held and "quota" in waiting.reason
    other, more = broker.ask(OTHER, LeaseRequest(count=6, waits=False))
    assert other.lease.held
    for one in (*locks, lock, more):
        os.close(one)


def test_a_quota_holds_for_reservations_at_every_time(broker: Broker) -> None:
    """Else a group could keep GPUs from others that it can't use itself."""
    broker.set_rules(ME, Rules(quotas={GROUP: 2}))
    now = broker.clock.wall()

    def reserve(caller: Caller, count: int, start: float, end: float) -> None:
        broker.reserve(caller, Wish(count, now + start * HOUR, now + end * HOUR))

    with pytest.raises(GpuyardError, match=f"the group {GROUP} has a quota of 2 GPUs at once"):
        reserve(ME, 3, 10, 12)
    reserve(ME, 1, 10, 12)
    reserve(ME, 1, 11, 13)
    with pytest.raises(GpuyardError, match="of which 2 are reserved"):
        reserve(ME, 1, 8, 20)
    reserve(ME, 2, 13, 20)
    reserve(OTHER, 6, 8, 20)


def test_weekly_hours_count_what_was_used(broker: Broker) -> None:
    broker.set_rules(ME, Rules(weekly_hours={GROUP: 10.0}))
    turn, lock = broker.ask(ME, LeaseRequest(count=1))
    broker.ask(ME, LeaseRequest(count=1, waits=False))
    with broker.database.transaction() as connection:
        connection.execute("UPDATE leases SET start = start - 36000 WHERE id = ?", (turn.lease.id,))
    with pytest.raises(NoneFree, match="quota"):
        broker.ask(ME, LeaseRequest(waits=False))
    os.close(lock)


def test_priority_comes_first_then_who_used_less(broker: Broker) -> None:
    broker.set_rules(ME, Rules(half_life_seconds=86400.0))
    all_, lock = broker.ask(ME, LeaseRequest(count=8))
    locks = [lock]
    with broker.database.transaction() as connection:
        connection.execute("UPDATE leases SET start = start - 3600 WHERE id = ?", (all_.lease.id,))
    locks.extend(broker.ask(caller, LeaseRequest(count=8))[1] for caller in (ME, OTHER))
    assert [one.uid for one in broker.state().waiting] == [OTHER.uid, ME.uid]
    broker.set_rules(ME, Rules(half_life_seconds=86400.0, priorities={GROUP: 10}))
    locks.append(broker.ask(ME, LeaseRequest(count=7))[1])
    assert [one.count for one in broker.state().waiting] == [7, 8, 8]
    for one in locks:
        os.close(one)


def test_by_group_a_member_who_used_nothing_has_the_groups_use(broker: Broker) -> None:
    broker.set_rules(ME, Rules(half_life_seconds=86400.0, fair_share="group"))
    heavy, light = (Caller(uid, gid, os.getpid()) for uid, gid in ((70001, 0), (70002, 1)))
    newcomer = Caller(70003, heavy.gid, os.getpid())
    all_, lock = broker.ask(heavy, LeaseRequest(count=8))
    with broker.database.transaction() as connection:
        connection.execute("UPDATE leases SET start = start - 3600 WHERE id = ?", (all_.lease.id,))
    locks = [lock, *(broker.ask(who, LeaseRequest(count=8))[1] for who in (newcomer, light))]
    assert [one.uid for one in broker.state().waiting] == [light.uid, newcomer.uid]
    for one in locks:
        os.close(one)


def test_use_halves_with_each_half_life(broker: Broker) -> None:
    turn, lock = broker.ask(ME, LeaseRequest(count=2))
    old = replace(turn.lease, start=0.0, end=100.0)
    rules = Rules(half_life_seconds=1000.0)
    assert recent_use(rules, [old], 50.0 + 1000.0) == {ME.uid: pytest.approx(100.0, rel=1e-3)}
    assert recent_use(rules, [old], 50.0 + 3000.0) == {ME.uid: pytest.approx(25.0, rel=1e-3)}
    assert recent_use(Rules(), [old], 50.0) == {}
    os.close(lock)


def test_the_policy_is_set_shown_and_kept(share: Path, cli: Cli, broker: Broker) -> None:
    line = ("--half-life", "7d", "--quota", "students=2", "--priority", "staff=10")
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
        broker.set_rules(OTHER, Rules())


def test_audit_enforces_only_what_the_policy_says(share: Path, cli: Cli) -> None:
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
    {"do": "release", "id": "\ud800"},
    {"do": "history", "after": 2**63},
    {"do": "drain", "until": float("inf")},
    {"do": "drain", "until": -1e308},
    {"do": "drain", "until": float("nan")},
    {"do": "set_rules", "rules": {"priorities": {"staff": "x"}}},
    {"do": "set_rules", "rules": {"priorities": 1.5}},
    {"do": "set_rules", "rules": {"quotas": {"staff": float("nan")}}},
    {"do": "set_rules", "rules": {"weekly_hours": {"staff": [1]}}},
)


@pytest.mark.parametrize("junk", JUNK, ids=json.dumps)
def test_what_no_gpuyard_sends_is_a_mistake_even_of_an_admin(
    share: Path, junk: dict[str, object]
) -> None:
    """Nothing of it gets into the store or the policy, where it would trouble everybody."""
    broker = Broker(share)
    before = config_file(share).read_bytes()
    with pytest.raises(UserMistake):
        perform(broker, this_process(), _request(json.dumps(junk).encode()))
    assert config_file(share).read_bytes() == before and broker.state() == ShareState((), ())
    broker.close()


def test_a_long_history_is_added_up_and_not_read(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits asks for it many times a minute, and everybody would wait for them."""
    now = broker.clock.wall()
    ask = broker.ask(ME, LeaseRequest(count=8))[1]
    waiting = [broker.ask(caller, LeaseRequest()) for caller in (ME, OTHER)]
    ended = [(number, number % 3, now - 40 * number, now - 33 * number) for number in range(9, 500)]
    with broker.database.transaction() as connection:
        connection.executemany(
            "INSERT INTO leases (number, id, uid, user, 'group', pid, process_start, boot_id, command, project,"
            " count, wanted, parts, asked, gpus, start, 'end', ended) VALUES (?1, 'x' || ?1, ?2, 'u', 'g' || ?2,"
            " 1, 1, 'b', 'c', 'p', 2, '[]', 500000, 0, '[0, 1]', ?3, ?4, 'finished')",
            ended,
        )
    history = [lease for lease in broker.history() if lease.ended]
    for fair_share in ("user", "group"):
        rules = Rules(half_life_seconds=HOUR, fair_share=fair_share)
        used = PastUse().decayed(broker.database, rules, now)
        whose = {
            lease.uid: lease.group if fair_share == "group" else lease.uid for lease in history
        }
        assert {uid: used[str(name)] for uid, name in whose.items()} == pytest.approx(
            recent_use(rules, history, now)
        )
    week = PastUse().of_last_week(broker.database, now)
    assert week == pytest.approx(
        {uid: sum(end - start for _, who, start, end in ended if who == uid) for uid in range(3)}
    )
    broker.set_rules(ME, Rules(half_life_seconds=HOUR, weekly_hours={GROUP: 1000.0}))
    read = []
    from_row = Lease.from_row

    def count(row: tuple[Any, ...]) -> Lease:
        read.append(row)
        return from_row(row)

    monkeypatch.setattr(Lease, "from_row", count)
    assert broker.claim(ME, waiting[0][0].lease.id).position
    assert len(read) < 50
    for lock in (ask, waiting[0][1], waiting[1][1]):
        os.close(lock)
