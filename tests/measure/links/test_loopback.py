"""Real sockets between real processes, on 127.0.0.1 and nowhere else."""

import socket
import subprocess
from pathlib import Path

import psutil
import pytest

from gpuyard.errors import GpuyardError
from gpuyard.measure.links import loopback
from gpuyard.measure.links.loopback import open_loopback, time_loopback


@pytest.mark.parametrize("both_ways", [False, True])
def test_every_repeat_is_timed(both_ways: bool) -> None:
    seconds = time_loopback(3_000_001, 3, both_ways=both_ways)
    assert len(seconds) == 3
    assert all(took > 0 for took in seconds)


def test_one_connection_does_both_directions_in_any_order() -> None:
    with open_loopback() as opened:
        for both_ways in (True, False, True):
            assert opened.time_exchange(10_000, both_ways=both_ways) > 0


def test_it_listens_on_loopback_only_and_leaves_nothing_behind() -> None:
    me = psutil.Process()
    before = {child.pid for child in me.children(recursive=True)}
    with open_loopback() as opened:
        opened.time_exchange(1000, both_ways=False)
        (child,) = [c for c in me.children(recursive=True) if c.pid not in before]
        mine = [c for c in me.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
        assert {c.laddr.ip for c in mine} == {"127.0.0.1"}
    assert not psutil.pid_exists(child.pid)


def test_a_stranger_that_knocks_is_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    start = loopback._start
    strangers: list[socket.socket] = []

    def knock_first(port: int, secret: bytes, budget: float) -> subprocess.Popen[bytes]:
        stranger = socket.create_connection(("127.0.0.1", port))
        stranger.sendall(bytes(len(secret)))
        strangers.append(stranger)
        return start(port, secret, budget)

    monkeypatch.setattr(loopback, "_start", knock_first)
    with open_loopback() as opened:
        assert opened.time_exchange(1000, both_ways=True) > 0
        assert strangers[0].recv(1) == b""
    strangers[0].close()


def test_a_process_that_dies_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(broken))
    with pytest.raises(GpuyardError, match="status 3"):
        time_loopback(1000, 1, both_ways=False)


def test_a_peer_that_is_killed_midway_is_reported() -> None:
    me = psutil.Process()
    before = {child.pid for child in me.children(recursive=True)}
    with pytest.raises(GpuyardError, match="loopback bench"), open_loopback() as opened:
        (child,) = [c for c in me.children(recursive=True) if c.pid not in before]
        child.kill()
        opened.time_exchange(50_000_000, both_ways=True)


def test_sizes_are_bounded() -> None:
    for size in (0, loopback.MAX_BYTES + 1):
        with pytest.raises(ValueError, match="are not between"):
            time_loopback(size, 1, both_ways=False)


def test_time_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """No repeat begins after the budget is used up, but there is always one."""
    now = [0.0]
    exchange = loopback.Loopback.time_exchange

    def takes_100_seconds(self: loopback.Loopback, size: int, *, both_ways: bool) -> float:
        now[0] += 100
        return exchange(self, size, both_ways=both_ways)

    monkeypatch.setattr(loopback, "monotonic", lambda: now[0])
    monkeypatch.setattr(loopback.Loopback, "time_exchange", takes_100_seconds)
    assert len(time_loopback(1000, 9, both_ways=False, budget_seconds=350)) == 3
    assert len(time_loopback(1000, 9, both_ways=False, budget_seconds=60)) == 1
