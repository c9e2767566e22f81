"""The history of leases: it is kept for the time that the policy sets, and its length slows nothing down."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpuyard.errors import UserMistake
from gpuyard.share.broker import Broker
from gpuyard.share.caller import Caller
from gpuyard.share.clock import Clock
from gpuyard.share.config import Rules
from gpuyard.share.models import LeaseRequest
from tests.share.conftest import acting_as

DAY_SECONDS = 86400.0


@pytest.fixture
def broker(share: Path) -> Iterator[Broker]:
    opened = Broker(share)
    yield opened
    opened.close()


def _add_ended(broker: Broker, count: int = 1) -> None:
    for _ in range(count):
        status, lock = broker.ask(LeaseRequest(command="train"))
        assert broker.finish(status.lease.id, childless=True)
        os.close(lock)


def _wait_days(broker: Broker, days: float) -> None:
    broker.store.clock = Clock(wall_offset=days * DAY_SECONDS)


def test_leases_are_forgotten_after_the_time_that_the_policy_sets(broker: Broker) -> None:
    _add_ended(broker, 2)
    broker.set_rules(Rules(history_seconds=30 * DAY_SECONDS))
    _wait_days(broker, 29)
    broker.prune_history()
    assert len(broker.history_page()) == 2
    held, lock = broker.ask(LeaseRequest())
    _wait_days(broker, 31)
    broker.prune_history()
    assert [lease.id for lease in broker.history_page()] == [held.lease.id], "it is still held"
    os.close(lock)
    for mistake in (DAY_SECONDS, -1.0):
        with pytest.raises(UserMistake, match="7 days"):
            Rules(history_seconds=mistake)


def test_nothing_is_forgotten_if_the_admin_says_so(broker: Broker) -> None:
    _add_ended(broker)
    broker.set_rules(Rules(history_seconds=None))
    _wait_days(broker, 5000)
    broker.prune_history()
    assert len(broker.history_page()) == 1


def test_usage_since_a_time_reads_only_later_leases(broker: Broker) -> None:
    _add_ended(broker, 3)
    (last,) = broker.history_page(after=2)
    assert last.end is not None
    assert broker.history_page(since=last.end) == [last]
    assert broker.history_page(since=last.end + 1) == []


def test_the_state_reads_no_more_rows_after_many_leases(broker: Broker) -> None:
    steps = []
    for ended in (3, 60):
        _add_ended(broker, ended)
        count = 0

        def add() -> int:
            nonlocal count
            count += 1
            return 0

        broker.store.connection.set_progress_handler(add, 1)
        assert broker.state().held == ()
        broker.prune_history()
        broker.store.connection.set_progress_handler(None, 0)
        steps.append(count)
    assert steps[1] <= steps[0] + 10


def test_others_see_no_command_in_the_history(broker: Broker) -> None:
    _add_ended(broker)
    stranger = acting_as(broker, replace(broker.caller, uid=65534, gid=65534))
    assert isinstance(stranger.caller, Caller)
    assert [lease.command for lease in broker.history_page()] == ["train"]
    assert [lease.command for lease in stranger.history_page()] == [""]
    broker.set_rules(Rules(commands="all"))
    stranger.store.config = broker.store.config
    assert [lease.command for lease in stranger.history_page()] == ["train"]
