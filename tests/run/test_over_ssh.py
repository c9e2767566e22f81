"""Ranks on two hosts over a real ssh, which share nothing but the network: two on each."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from gpuyard.errors import GpuyardError
from gpuyard.run.launch import Launcher
from gpuyard.run.places import Hosts, reach_hosts
from tests.run.sum_ranks import summed
from tests.ssh_hosts import HOSTS, ssh_hosts


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    with ssh_hosts(tmp_path, temporary) as programs:
        monkeypatch.setenv("PATH", str(programs), prepend=":")
        monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
        yield reach_hosts(HOSTS, ranks_per_node=2)


@pytest.mark.soak  # what trains over ssh exchanges, too: measure/training/test_over_ssh.py
@pytest.mark.parametrize("launcher", ["torchrun", "direct"])
def test_two_ranks_on_each_of_two_hosts_exchange(hosts: Hosts, launcher: Launcher) -> None:
    said = summed(hosts, 4, launcher)
    assert said.total == 0b1111
    assert said.directory_is_shared == (os.geteuid() != 0)
    names = ("RANK", "WORLD_SIZE", "GROUP_RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    assert [tuple(seat[name] for name in names) for seat in said.seats] == [
        ("0", "4", "0", "0", "2"),
        ("1", "4", "0", "1", "2"),
        ("2", "4", "1", "0", "2"),
        ("3", "4", "1", "1", "2"),
    ]
    # the address of the server is the third word
    assert [seat["SSH_CONNECTION"].split()[2] for seat in said.seats] == [
        *(HOSTS[0],) * 2,
        *(HOSTS[1],) * 2,
    ]
    # nobody said how many threads: two ranks of a host share its cores
    assert {seat["OMP_NUM_THREADS"] for seat in said.seats} == {
        str(max(1, len(psutil.Process().cpu_affinity()) // 2))
    }


@pytest.mark.soak
def test_the_first_host_is_filled_before_the_next(hosts: Hosts) -> None:
    said = summed(hosts, 3, "torchrun")
    assert said.total == 0b111
    assert [(seat["GROUP_RANK"], seat["LOCAL_RANK"]) for seat in said.seats] == [
        ("0", "0"),
        ("0", "1"),
        ("1", "0"),
    ]
    record = hosts.record(3)
    assert (record.nodes, record.ranks_per_node) == (HOSTS, 2)


@pytest.mark.parametrize("launcher", ["torchrun", pytest.param("direct", marks=pytest.mark.soak)])
def test_of_several_ranks_of_a_host_the_one_that_failed_is_shown(
    hosts: Hosts, launcher: Launcher
) -> None:
    with pytest.raises(GpuyardError, match="rank 3 of 4 ended with status 1") as caught:
        summed(hosts, 4, launcher, fails=3)
    assert "ValueError: rank 3 has had enough" in str(caught.value)
    assert "[rank" not in str(caught.value)
    deadline = time.monotonic() + 60
    while ranks_left():  # those of the other host hear of it when their connection has ended
        assert time.monotonic() < deadline
        time.sleep(0.05)


def ranks_left() -> list[str]:
    left = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has ended, or is a zombie
            left.append(" ".join(process.cmdline()))
    return [line for line in left if "sum_ranks" in line]


def processes(under: Path) -> list[psutil.Process]:
    """The agents and ranks that are told by their environment to keep their files there."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            mine = process.environ().get("TMPDIR") == str(under)
            if (
                mine
                and process.cmdline()[-2:] == ["-m", "sum_ranks"]
                and "RANK" in process.environ()
            ):
                found.append(process)
    return found


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.soak
def test_nothing_is_left_on_the_hosts_of_a_run_that_was_killed(
    hosts: Hosts, tmp_path: Path
) -> None:
    remote = tmp_path / "remote"
    driver = subprocess.Popen(
        [sys.executable, "-m", "sum_ranks", ",".join(HOSTS), "4", "torchrun", "2"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: len(processes(remote)) == 2 + 4 or driver.poll() is not None)
    finally:
        driver.kill()
        driver.wait()
    assert driver.returncode == -signal.SIGKILL
    wait_for(lambda: not processes(remote) and not list(remote.iterdir()))


def test_a_host_that_does_not_answer_is_named(hosts: Hosts) -> None:
    with pytest.raises(GpuyardError, match=r"127\.0\.0\.3 can't be asked for its GPUs") as caught:
        reach_hosts(("127.0.0.1", "127.0.0.3"))
    assert "Connection refused" in str(caught.value)


def test_without_gpus_a_host_has_one_rank(hosts: Hosts) -> None:
    found = reach_hosts(HOSTS)
    gpus = [len(each) for each in found.gpus_by_node]
    assert found.ranks_by_node == tuple(max(1, count) for count in gpus)
