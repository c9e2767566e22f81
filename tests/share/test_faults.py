"""Clock changes, reboots, full disks, and damaged stores: no lease ends early, and no GPU is leased twice."""

import contextlib
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gpuyard.errors import GpuyardError
from gpuyard.share import processes
from gpuyard.share.broker import Broker
from gpuyard.share.clock import Clock
from gpuyard.share.models import LeaseRequest, NoneFree
from gpuyard.share.recovery import recover
from gpuyard.share.schedule import JobAnnouncement
from gpuyard.share.setup import set_up
from gpuyard.share.store import DATABASE, FORMAT, Store
from tests.conftest import Cli
from tests.share.conftest import Start, holders, needs_root

Who = Callable[[], dict[str, Any]]
HOUR = 3600.0


@pytest.mark.parametrize("jump", [HOUR, -HOUR, 100 * 24 * HOUR])
def test_no_lease_ends_because_the_clock_jumps(share: Path, jump: float) -> None:
    before = Broker(share)
    status, lock = before.ask(LeaseRequest(count=8, seconds=600))
    after = Broker(share, clock=Clock(wall_offset=jump))
    with pytest.raises(NoneFree):
        after.ask(LeaseRequest(waits=False))
    assert [lease.id for lease in after.state().held] == [status.lease.id]
    os.close(lock)
    for broker in (before, after):
        broker.close()


def test_a_lease_ends_by_the_clock_since_boot_alone(share: Path) -> None:
    """Another process holds the lease, because this one must not be stopped."""
    broker = Broker(share, clock=Clock(wall_offset=-HOUR))
    holder, lock = start_holder(broker, LeaseRequest(count=8, seconds=0.2))
    os.close(lock)
    time.sleep(0.3)
    status, other = broker.ask(LeaseRequest(count=8, waits=False))
    assert status.lease.held and holder.wait(60) == -signal.SIGTERM
    os.close(other)
    broker.close()


def test_after_a_reboot_all_leases_are_free(share: Path) -> None:
    broker = Broker(share)
    _, lock = broker.ask(LeaseRequest(count=8))
    rebooted = Broker(share, clock=Clock(boot_id="another"))
    status, other = rebooted.ask(LeaseRequest(count=8, waits=False))
    assert status.lease.held
    assert [lease.end_reason for lease in rebooted.history_page()] == ["reboot", None]
    for descriptor in (lock, other):
        os.close(descriptor)
    for opened in (broker, rebooted):
        opened.close()


def test_out_of_file_descriptors_no_process_counts_as_ended(share: Path) -> None:
    """A busy service may run out of descriptors; a process that it cannot examine still has its GPU."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    looks: tuple[Callable[[], object], ...] = (
        Clock,
        lambda: processes.start_time(os.getppid()),
        lambda: processes.find_processes(processes.ProcessMatcher("0000abcd", os.getuid())),
    )
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
        for look in looks:
            with pytest.raises(GpuyardError, match="cannot lease GPUs now"):
                look()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.fixture
def small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A share on its own small disk."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)), check=True)
    directory = place / "share"
    monkeypatch.setenv("GPUYARD_SHARE_DIR", str(directory))
    set_up(directory, fake_gpus=8, grace_seconds=0.5)
    yield directory
    subprocess.run(("umount", "--lazy", str(place)), check=True)


@needs_root
def test_a_full_disk_refuses_new_leases_and_who_still_works(
    small_disk: Path, cli: Cli, who: Who, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUYARD_SHARE_DIR", str(small_disk))
    leased = subprocess.Popen(
        (sys.executable, "-m", "gpuyard", "lease", "2", "--", "sh", "-c", "echo up; exec sleep 60"),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert leased.stdout is not None and leased.stdout.readline() == "up\n"
    with (small_disk.parent / "filler").open("wb", buffering=0) as filler, pytest.raises(OSError):
        while True:
            filler.write(b"x" * 4096)
    for _ in range(3):
        refused = cli("lease", "1", "--now", "--", "true", status=1).stderr
        assert "cannot lease GPUs" in refused and "`gpuyard who`" in refused
        output = _who(cli)
        assert sorted(holders(output)) == [0, 1]
    assert leased.poll() is None
    cli("release", holders(output)[0][0])
    assert leased.wait(60) in (143, -signal.SIGTERM, -signal.SIGKILL)
    leased.stdout.close()
    assert holders(_who(cli)) == {}
    (small_disk.parent / "filler").unlink()
    assert cli("lease", "8", "--now", "--", "true")
    assert holders(_who(cli)) == {}


@pytest.fixture
def frozen_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk whose writers hang in the kernel and cannot be killed, as with a broken driver or file server."""
    image, place = tmp_path / "image", tmp_path / "frozen"
    with image.open("wb") as file:
        file.truncate(16_000_000)
    place.mkdir()
    mount = f"mkfs.ext4 -q {image} && mount -o loop {image} {place} && fsfreeze --freeze {place}"
    result = subprocess.run(("sh", "-c", mount), capture_output=True, text=True, check=False)
    if result.returncode:
        subprocess.run(("umount", str(place)), capture_output=True, check=False)
        pytest.skip(f"no disk here that can be frozen: {result.stderr}")
    try:
        yield place
    finally:
        subprocess.run(("fsfreeze", "--unfreeze", str(place)), capture_output=True, check=False)
        subprocess.run(("umount", "--lazy", str(place)), check=True)


@needs_root
def test_a_killed_process_stuck_in_the_kernel_is_not_waited_for_again(frozen_disk: Path) -> None:
    """Its lease stays, but it does not delay each later request by seconds."""
    hanging = subprocess.Popen(("touch", str(frozen_disk / "file")))
    try:
        launcher = (hanging.pid, processes.start_time(hanging.pid))
        marks = processes.ProcessMatcher("none", os.getuid(), None, launcher)
        stat = Path(f"/proc/{hanging.pid}/stat")
        while stat.read_text().split()[2] != "D":
            time.sleep(0.01)
        assert processes.stop_processes([marks], 0.0) == {"none"}
        remaining: list[set[str]] = []
        again = threading.Thread(
            target=lambda: remaining.append(processes.stop_processes([marks], 3600.0)), daemon=True
        )
        again.start()
        again.join(30)
        assert remaining == [{"none"}]
    finally:
        subprocess.run(("fsfreeze", "--unfreeze", str(frozen_disk)), check=True)
        hanging.wait(60)


def test_a_lease_that_cannot_be_stored_leaves_no_open_files(share: Path) -> None:
    """A lock that the service keeps open would look like a running lease."""
    broker = Broker(share)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        # a note in a lock fits, but a page in the log does not, so that only the commit fails
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
        for _ in range(3):
            with pytest.raises(GpuyardError, match="cannot lease GPUs"):
                broker.ask(LeaseRequest(waits=False))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    opened = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # that of the directory itself
            opened.append(descriptor.readlink())
    assert [path for path in opened if path.parent == share / "locks"] == []
    assert list((share / "locks").iterdir()) == []
    broker.close()


def _who(cli: Cli) -> dict[str, Any]:
    import json

    return dict(json.loads(cli("who", "--json").stdout))


def test_acknowledged_leases_are_on_disk(share: Path) -> None:
    broker = Broker(share)
    assert broker.store.connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
    assert broker.store.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    broker.close()


@pytest.mark.parametrize(("step", "word"), [(1, "newer"), (-1, "older")])
def test_a_store_of_another_version_is_refused_and_not_changed(
    share: Path, cli: Cli, step: int, word: str
) -> None:
    path = share / DATABASE
    store = sqlite3.connect(path)
    store.execute(f"PRAGMA user_version = {FORMAT.version + step}")
    store.close()
    before = path.read_bytes()
    assert f"{word} gpuyard (store version" in cli("lease", "1", "--", "true", status=1).stderr
    assert f"{word} gpuyard (store version" in cli("who", status=1).stderr
    assert path.read_bytes() == before


def test_a_damaged_store_is_reported_and_recovers_with_held_leases(
    share: Path, cli: Cli, start: Start, who: Who
) -> None:
    leased = start("lease", "3", "--", "sh", "-c", "echo up; exec sleep 60")
    assert leased.stdout is not None and leased.stdout.readline() == "up\n"
    before = holders(who())
    for suffix in ("-wal", "-shm"):
        (share / f"{DATABASE}{suffix}").unlink(missing_ok=True)
    (share / DATABASE).write_bytes(b"SQLite format 3\0" + os.urandom(20_000))
    for command in (("lease", "1", "--now", "--", "true"), ("who",)):
        output = cli(*command, status=1).stderr
        assert "gpuyard share recover" in output and DATABASE in output
    assert "1 current leases" in cli("share", "recover").stderr
    assert holders(who()) == before and leased.poll() is None
    assert cli("lease", "5", "--now", "--", "true")
    assert cli("lease", "6", "--now", "--", "true", status=75)
    assert len(list(share.glob(f"{DATABASE}.damaged-*"))) == 1
    leased.terminate()
    assert leased.wait(60) == 143
    cli("lease", "8", "--now", "--", "true")
    assert "not damaged" in cli("share", "recover").stderr


def test_readable_rows_of_a_damaged_store_are_kept(
    share: Path, cli: Cli, start: Start, who: Who
) -> None:
    cli("reserve", "2", "--start", "tomorrow 18:00", "--for", "12h")
    cli("share", "drain", "--gpu-ids", "7")
    leased = start("lease", "1", "--", "sh", "-c", "echo up; exec sleep 60")
    assert leased.stdout is not None and leased.stdout.readline() == "up\n"
    with sqlite3.connect(share / DATABASE) as store:
        store.execute(  # a history of 500 leases more
            "WITH RECURSIVE more (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM more WHERE n < 500)"
            ' INSERT INTO leases (id, uid, user, "group", pid, process_start, boot_id, command,'
            ' project, count, requested_gpus, parts, requested_at, gpus, start, "end", end_reason)'
            " SELECT 'old' || n, 0, 'ann', 'ann', 1, 1, 'x', 'train', '', 1, '[]', 1000000, n, '[3]',"
            " strftime('%s') - 600.0 - n, strftime('%s') - n + 0.0, 'finished' FROM more"
        )
        roots = [page for (page,) in store.execute("SELECT rootpage FROM sqlite_master")]
        before = len(store.execute("SELECT 1 FROM leases").fetchall())
    store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    store.close()
    with (share / DATABASE).open("r+b") as file:  # one page in the midst of the history
        file.seek((max(roots) + 5) * 4096)
        file.write(b"\xff" * 4096)
    output = cli("share", "recover").stderr
    assert "1 current leases" in output and "2 reservations" in output
    state = who()
    assert sorted(holders(state)) == [0] and leased.poll() is None
    assert [r["count"] for r in state["reservations"]] == [2]
    assert [gpu["index"] for gpu in state["gpus"] if gpu["drained"]] == [7]
    broker = Broker(share)
    kept = broker.history_page()
    broker.close()
    assert before * 0.8 < len(kept) < before
    assert {lease.end_reason for lease in kept} == {None, "finished"}


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "[]",
        '{"gpus": 3}',
        '{"gpus": [{"index": 0, "name": "x", "color": "red"}]}',
        '{"gpus": [], "rules": {"half_life_seconds": "a day"}}',
        '{"gpus": [], "rates": [1]}',
        '{"gpus": [{"index": 0, "name": "x"}], "grace_seconds": "soon"}',
        '{"gpus": [{"index": "0", "name": "x"}]}',
    ],
)
def test_a_damaged_config_is_reported(share: Path, cli: Cli, text: str) -> None:
    (share / "share.json").write_text(text, encoding="utf-8")
    for command in (("lease", "1", "--now", "--", "true"), ("who",)):
        message = cli(*command, status=1).stderr
        assert "share.json" in message and "gpuyard share setup" in message


def test_another_programs_database_is_left_alone(share: Path) -> None:
    for path in share.glob(f"{DATABASE}*"):
        path.unlink()
    store = sqlite3.connect(share / DATABASE)
    store.execute("CREATE TABLE theirs (a)")
    store.close()
    with pytest.raises(GpuyardError, match="another program's"):
        Broker(share)


def test_one_user_cannot_fill_the_store(share: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuyard.share.broker.MAX_LEASES_PER_USER", 3)
    broker = Broker(share)
    locks = [broker.ask(LeaseRequest())[1] for _ in range(3)]
    with pytest.raises(GpuyardError, match="has 3 leases"):
        broker.ask(LeaseRequest())
    for lock in locks:
        os.close(lock)
    broker.close()


def start_holder(broker: Broker, request: LeaseRequest) -> tuple["subprocess.Popen[bytes]", int]:
    """Start a process that holds the lock of a lease whose PID is not this process."""
    status, lock = broker.ask(request)
    with broker.store.transaction() as connection:
        connection.execute("UPDATE leases SET pid = 0, process_start = 0")
    holder = subprocess.Popen(("sleep", "60"), pass_fds=(lock,))
    assert status.lease.held
    return holder, lock


def test_overdue_leases_are_stopped_together(
    share: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request waits for one grace period, however many leases it stops."""
    command = ("sh", "-c", "trap '' TERM; echo started; while :; do sleep 1; done")
    launchers = [start("lease", "1", "--for", "8s", "--", *command) for _ in range(3)]
    for launcher in launchers:
        assert launcher.stdout is not None and launcher.stdout.readline() == "started\n"
        launcher.kill()
        launcher.wait()
    broker = Broker(share)
    held = broker.state().held
    assert len(held) == 3
    while broker.store.clock.boot() < max(lease.until_boot or 0.0 for lease in held):
        time.sleep(0.05)
    stopped: list[int] = []
    stop = processes.stop_processes

    def count(leases: Sequence[processes.ProcessMatcher], grace_seconds: float) -> set[str]:
        stopped.append(len(leases))
        return stop(leases, grace_seconds)

    monkeypatch.setattr("gpuyard.share.expiry.stop_processes", count)
    status, lock = broker.ask(LeaseRequest(8, waits=False))
    os.close(lock)
    assert status.lease.held and stopped == [3]
    assert [lease.end_reason for lease in broker.history_page()[:3]] == ["time"] * 3
    broker.close()


def test_an_overdue_lease_is_stopped_only_for_its_gpus(share: Path) -> None:
    """Its holder may ignore SIGTERM, and a request that needs other GPUs must not wait for it."""
    broker = Broker(share)
    with contextlib.ExitStack() as locks:

        def lease(count: int) -> int:
            status, lock = broker.ask(LeaseRequest(count, waits=False))
            locks.callback(os.close, lock)
            return len(status.lease.gpus)

        holder, lock = start_holder(broker, LeaseRequest(1))
        os.close(lock)
        with broker.store.transaction() as connection:  # as if its time were over
            connection.execute("UPDATE leases SET until_boot = ?", (broker.store.clock.boot() - 1,))
        assert lease(1) == 1
        waiting = JobAnnouncement("a", "local://1", "waiting", 1, 1, 1, (1.0,), 60.0, 0.0)
        assert broker.schedule("1", [waiting]).starts == {"a": 1}
        broker.schedule("1", [])
        assert holder.poll() is None
        assert lease(7) == 7
        assert holder.wait(60) == -signal.SIGTERM
    broker.close()


@pytest.mark.parametrize("asks", ["for a job", "again"])
def test_an_overdue_lease_is_stopped_for_a_job_or_request_that_waits(
    share: Path, asks: str
) -> None:
    broker = Broker(share)
    holder, lock = start_holder(broker, LeaseRequest(8))
    os.close(lock)
    status, lock = broker.ask(LeaseRequest(1))
    assert not status.lease.held
    if asks == "for a job":
        os.close(lock)
        broker.leave(status.lease.id)
    with broker.store.transaction() as connection:
        connection.execute(
            "UPDATE leases SET until_boot = ? WHERE start IS NOT NULL",
            (broker.store.clock.boot() - 1,),
        )
    if asks == "for a job":
        waiting = JobAnnouncement("a", "local://1", "waiting", 8, 8, 8, (1.0,), 60.0, 0.0)
        assert broker.schedule("1", [waiting]).starts == {"a": 8}
    else:
        assert broker.claim(status.lease.id).lease.held
        os.close(lock)
    assert holder.wait(60) == -signal.SIGTERM
    broker.close()


def test_a_damaged_store_stays_if_no_new_one_can_be_created(
    share: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk, for example: the next `share recover` still needs its history."""
    (share / DATABASE).write_bytes(b"damaged")

    def fail(*_: object, **__: object) -> None:
        raise GpuyardError("the disk is full")

    with monkeypatch.context() as full:
        full.setattr(Store, "_insert_held", fail)
        with pytest.raises(GpuyardError, match="the disk is full"):
            recover(share)
    assert (share / DATABASE).read_bytes() == b"damaged"
    recovered = recover(share)
    assert recovered is not None and recovered.damaged.read_bytes() == b"damaged"


def test_a_new_store_has_all_held_leases_from_the_start(share: Path, cli: Cli, who: Who) -> None:
    """A request before or without `share recover` gets no GPU that another lease holds."""
    before = Broker(share)
    _, lock = before.ask(LeaseRequest(8))
    for path in share.glob(f"{DATABASE}*"):
        path.unlink()
    with pytest.raises(GpuyardError, match=r"was replaced|cannot lease GPUs"):
        before.ask(LeaseRequest(waits=False))
    after = Broker(share)
    with pytest.raises(NoneFree):
        after.ask(LeaseRequest(waits=False))
    assert set(holders(who())) == set(range(8))
    with pytest.raises(GpuyardError, match="was replaced"):
        before.ask(LeaseRequest(waits=False))
    os.close(lock)
    assert after.ask(LeaseRequest(8))[0].lease.held
    for broker in (before, after):
        broker.close()
