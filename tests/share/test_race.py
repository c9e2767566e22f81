"""Many clients compete for 8 GPUs while some are killed: no GPU has two holders, and nothing is lost or leaked."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MACHINE
from tests.share.conftest import holders

Usage = Callable[[], list[dict[str, Any]]]
Who = Callable[[], dict[str, Any]]


@MACHINE
@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    ("many", "seconds"), [(14, 3), pytest.param(40, 60, marks=pytest.mark.soak)]
)
def test_no_gpu_is_leased_twice_whichever_process_is_killed(
    many: int, seconds: int, share: Path, tmp_path: Path, usage: Usage, who: Who
) -> None:
    check = tmp_path / "check"
    check.mkdir()
    chance = random.Random(seconds)
    clients = [_client(check, seed) for seed in range(many)]
    end = time.monotonic() + seconds
    killed = 0
    try:
        while time.monotonic() < end or killed <= seconds or len(_acknowledged(check)) <= 20:
            time.sleep(chance.uniform(0.05, 0.3))
            place = chance.randrange(many)
            victim = clients[place]
            # kill only the launcher, so that its command continues, or the whole lease
            if chance.random() < 0.5:
                victim.kill()
            else:
                os.killpg(victim.pid, signal.SIGKILL)
            victim.wait()
            killed += 1
            clients[place] = _client(check, many + killed)
        _kill_holder(check, who)
        (check / "stop").touch()
        for client in clients:
            assert client.wait(60) == 0
    finally:
        for client in clients:
            client.kill()
            client.wait()
    _wait_until(lambda: not holders(who()))

    assert not (check / "doubled").exists(), (check / "doubled").read_text()
    leases = usage()
    assert _acknowledged(check) <= {lease["id"] for lease in leases}
    assert all(lease["ended"] in ("finished", "died") for lease in leases)
    assert {lease["ended"] for lease in leases} == {"finished", "died"}
    output = who()
    assert not holders(output) and not output["queue"]
    assert list((share / "locks").iterdir()) == []
    with sqlite3.connect(share / "leases.sqlite") as store:
        assert store.execute("SELECT COUNT(*) FROM holds").fetchone() == (0,)
    store.close()


def _client(check: Path, seed: int, longest: float = 0.1) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        (sys.executable, "-m", "tests.share.race_client", str(check), str(seed), str(longest)),
        cwd=Path(__file__).parents[2],
        start_new_session=True,
    )


def _kill_holder(check: Path, who: Who) -> None:
    """Kill a client that holds a GPU, with its command; random kills may hit none."""
    client = _client(check, seed=0, longest=10_000)
    _wait_until(
        lambda: any(
            lease["pid"] == client.pid and lease["id"] in _acknowledged(check)
            for gpu in who()["gpus"]
            for lease in gpu["leases"]
        ),
        seconds=100,
    )
    os.killpg(client.pid, signal.SIGKILL)
    client.wait()


def _acknowledged(check: Path) -> set[str]:
    noted = check / "acknowledged"
    return set(noted.read_text().split()) if noted.exists() else set()


def _wait_until(true: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.1)
