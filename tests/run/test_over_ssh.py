"""Ranks over a real SSH, two on each of two hosts that share only the network."""

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

from gpuyard.choices import Launcher
from gpuyard.errors import GpuyardError
from gpuyard.run.places import Hosts, reach_hosts
from tests.run.sum_ranks import sum_ranks
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


@pytest.mark.soak  # measure/training/test_over_ssh.py covers communication over SSH as well.
@pytest.mark.parametrize("launcher", ["torchrun", "direct"])
def test_two_ranks_on_each_of_two_hosts_communicate(hosts: Hosts, launcher: Launcher) -> None:
    result = sum_ranks(hosts, 4, launcher)
    assert result.total == 0b1111
    assert result.directory_is_shared == (os.geteuid() != 0)
    names = ("RANK", "WORLD_SIZE", "GROUP_RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    assert [tuple(rank[name] for name in names) for rank in result.ranks] == [
        ("0", "4", "0", "0", "2"),
        ("1", "4", "0", "1", "2"),
        ("2", "4", "1", "0", "2"),
        ("3", "4", "1", "1", "2"),
    ]
    # The third word is the server's address.
    assert [rank["SSH_CONNECTION"].split()[2] for rank in result.ranks] == [
        *(HOSTS[0],) * 2,
        *(HOSTS[1],) * 2,
    ]
    # By default, two ranks of a host share its cores.
    assert {rank["OMP_NUM_THREADS"] for rank in result.ranks} == {
        str(max(1, len(psutil.Process().cpu_affinity()) // 2))
    }


@pytest.mark.soak
def test_the_first_host_is_filled_before_the_next(hosts: Hosts) -> None:
    result = sum_ranks(hosts, 3, "torchrun")
    assert result.total == 0b111
    assert [(rank["GROUP_RANK"], rank["LOCAL_RANK"]) for rank in result.ranks] == [
        ("0", "0"),
        ("0", "1"),
        ("1", "0"),
    ]
    record = hosts.record(3)
    assert (record.nodes, record.ranks_per_node) == (HOSTS, 2)


@pytest.mark.parametrize("launcher", ["torchrun", pytest.param("direct", marks=pytest.mark.soak)])
def test_the_failed_rank_of_a_host_is_reported(hosts: Hosts, launcher: Launcher) -> None:
    with pytest.raises(GpuyardError, match=r"rank 3 of 4 .*status 1") as caught:
        sum_ranks(hosts, 4, launcher, fails=3)
    assert "ValueError: rank 3 fails" in str(caught.value)
    assert "[rank" not in str(caught.value)
    deadline = time.monotonic() + 60
    while list_running_ranks():  # Those of the other host exit when their connection closes.
        assert time.monotonic() < deadline
        time.sleep(0.05)


def list_running_ranks() -> list[str]:
    commands = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # It has exited, or is a zombie.
            commands.append(" ".join(process.cmdline()))
    return [command for command in commands if "sum_ranks" in command]


def list_processes(directory: Path) -> list[psutil.Process]:
    """List the agents and ranks whose temporary directory this is."""
    processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            environment = process.environ()
            if (
                environment.get("TMPDIR") == str(directory)
                and process.cmdline()[-2:] == ["-m", "sum_ranks"]
                and "RANK" in environment
            ):
                processes.append(process)
    return processes


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.soak
def test_a_killed_run_leaves_nothing_on_its_hosts(hosts: Hosts, tmp_path: Path) -> None:
    remote = tmp_path / "remote"
    driver = subprocess.Popen(
        [sys.executable, "-m", "sum_ranks", ",".join(HOSTS), "4", "torchrun", "2"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: len(list_processes(remote)) == 2 + 4 or driver.poll() is not None)
    finally:
        driver.kill()
        driver.wait()
    assert driver.returncode == -signal.SIGKILL
    wait_for(lambda: not list_processes(remote) and not list(remote.iterdir()))


def test_an_unreachable_host_is_named(hosts: Hosts) -> None:
    with pytest.raises(GpuyardError, match=r"127\.0\.0\.3") as caught:
        reach_hosts(("127.0.0.1", "127.0.0.3"))
    assert "Connection refused" in str(caught.value)


def test_without_gpus_a_host_has_one_rank(hosts: Hosts) -> None:
    place = reach_hosts(HOSTS)
    gpus = [len(names) for names in place.gpus_by_node]
    assert place.ranks_by_node == tuple(max(1, count) for count in gpus)
