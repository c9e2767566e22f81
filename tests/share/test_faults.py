"""Clocks that jump, reboots, full disks, old and damaged stores: no lease ends early, and none is given twice."""

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
from gpuyard.share.service.caller import this_process
from gpuyard.share.setup import set_up
from gpuyard.share.store.broker import DATABASE, Broker
from gpuyard.share.store.clock import Clock
from gpuyard.share.store.lease import LeaseRequest, NoneFree
from gpuyard.share.store.recovery import recover
from gpuyard.share.store.schema import VERSION
from gpuyard.share.watch import processes
from tests.conftest import Cli
from tests.share.conftest import Start, holders, needs_root

Who = Callable[[], dict[str, Any]]
HOUR = 3600.0


@pytest.mark.parametrize("jump", [HOUR, -HOUR, 100 * 24 * HOUR])
def test_no_lease_ends_because_the_clock_jumps(share: Path, jump: float) -> None:
    before = Broker(share)
    turn, lock = before.ask(this_process(), LeaseRequest(count=8, seconds=600))
    after = Broker(share, clock=Clock(wall_offset=jump))
    with pytest.raises(NoneFree):
        after.ask(this_process(), LeaseRequest(waits=False))
    assert [lease.id for lease in after.state().held] == [turn.lease.id]
    os.close(lock)
    for broker in (before, after):
        broker.close()


def test_a_lease_ends_by_the_clock_since_boot_alone(share: Path) -> None:
    """Its holder is this process, which must not be ended: so a process is made that holds it."""
    broker = Broker(share, clock=Clock(wall_offset=-HOUR))
    holder, lock = _holding(broker, LeaseRequest(count=8, seconds=0.2))
    os.close(lock)
    time.sleep(0.3)
    turn, other = broker.ask(this_process(), LeaseRequest(count=8, waits=False))
    assert turn.lease.held and holder.wait(60) == -signal.SIGTERM
    os.close(other)
    broker.close()


def test_after_a_reboot_all_leases_are_free(share: Path) -> None:
    broker = Broker(share)
    _, lock = broker.ask(this_process(), LeaseRequest(count=8))
    rebooted = Broker(share, clock=Clock(boot_id="another"))
    turn, other = rebooted.ask(this_process(), LeaseRequest(count=8, waits=False))
    assert turn.lease.held
    assert [lease.ended for lease in rebooted.history()] == ["reboot", None]
    for descriptor in (lock, other):
        os.close(descriptor)
    for opened in (broker, rebooted):
        opened.close()


def test_who_can_open_no_file_takes_nobody_for_gone(share: Path) -> None:
    """Of many who ask at once a service may run out of them; a process that it can't look at still has its GPU."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    looks: tuple[Callable[[], object], ...] = (
        Clock,
        lambda: processes.start_time(os.getppid()),
        lambda: processes.processes_of(processes.Marks("0000abcd", os.getuid())),
    )
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
        for look in looks:
            with pytest.raises(GpuyardError, match="no lease can be given now"):
                look()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.fixture
def small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A share on a disk of its own, which can be filled."""
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
        assert "no lease can be given" in refused and "who` still works" in refused
        said = _who(cli)
        assert sorted(holders(said)) == [0, 1]
    assert leased.poll() is None
    (small_disk.parent / "filler").unlink()
    assert cli("lease", "6", "--now", "--", "true")
    leased.terminate()
    assert leased.wait(60) == 143
    leased.stdout.close()
    assert holders(_who(cli)) == {}


@pytest.fixture
def frozen_disk(tmp_path: Path) -> Iterator[Path]:
    """Whoever writes to it waits in the kernel, and can't be killed: as where a driver or a file server hangs."""
    image, place = tmp_path / "image", tmp_path / "frozen"
    with image.open("wb") as file:
        file.truncate(16_000_000)
    place.mkdir()
    mount = f"mkfs.ext4 -q {image} && mount -o loop {image} {place} && fsfreeze --freeze {place}"
    made = subprocess.run(("sh", "-c", mount), capture_output=True, text=True, check=False)
    if made.returncode:
        subprocess.run(("umount", str(place)), capture_output=True, check=False)
        pytest.skip(f"no disk here that can be frozen: {made.stderr}")
    try:
        yield place
    finally:
        subprocess.run(("fsfreeze", "--unfreeze", str(place)), capture_output=True, check=False)
        subprocess.run(("umount", "--lazy", str(place)), check=True)


@needs_root
def test_what_was_killed_and_hangs_in_the_kernel_is_not_waited_for_again(frozen_disk: Path) -> None:
    """Its lease stays, but others' leases don't take seconds longer each time somebody asks."""
    hanging = subprocess.Popen(("touch", str(frozen_disk / "file")))
    try:
        launcher = (hanging.pid, processes.start_time(hanging.pid))
        marks = processes.Marks("none", os.getuid(), None, launcher)
        stat = Path(f"/proc/{hanging.pid}/stat")
        while stat.read_text().split()[2] != "D":
            time.sleep(0.01)
        assert processes.stop([marks], 0.0) == {"none"}
        left: list[set[str]] = []
        again = threading.Thread(
            target=lambda: left.append(processes.stop([marks], 3600.0)), daemon=True
        )
        again.start()
        again.join(30)
        assert left == [{"none"}]
    finally:
        subprocess.run(("fsfreeze", "--unfreeze", str(frozen_disk)), check=True)
        hanging.wait(60)


def test_a_lease_that_could_not_be_written_down_leaves_nothing_open(share: Path) -> None:
    """A service would keep it, and its lock would look like a lease that runs."""
    broker = Broker(share)
    before = set(Path("/proc/self/fd").iterdir())
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        # a note in a lock fits, a page in the log does not: it is the last step that fails
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
        for _ in range(3):
            with pytest.raises(GpuyardError, match="no lease can be given"):
                broker.ask(this_process(), LeaseRequest(waits=False))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert set(Path("/proc/self/fd").iterdir()) == before
    assert list((share / "locks").iterdir()) == []
    broker.close()


def _who(cli: Cli) -> dict[str, Any]:
    import json

    return dict(json.loads(cli("who", "--json").stdout))


def test_a_store_of_the_version_before_is_migrated_with_a_backup(share: Path, cli: Cli) -> None:
    path = share / DATABASE
    store = sqlite3.connect(path)
    for column in (
        "priority",
        "idle_since_boot",
        "utilisation_sum",
        "utilisation_samples",
        "ending",
    ):
        store.execute(f"ALTER TABLE leases DROP COLUMN {column}")
    store.execute(
        'INSERT INTO leases (id, uid, user, "group", pid, process_start, boot_id, command, project, count,'
        " wanted, parts, asked, gpus, start, start_boot)"
        " VALUES ('0000abcd', 0, 'root', 'root', 1, 1, 'old', 'x', '', 1, '[]', 1000000, 1, '[3]', 1, 1)"
    )
    store.execute("DROP TABLE reservations")
    store.execute("PRAGMA user_version = 1")
    store.commit()
    store.close()
    assert cli("lease", "1", "--now", "--", "true")
    broker = Broker(share)
    assert [(lease.id, lease.ended) for lease in broker.history()] == [
        ("0000abcd", "reboot"),
        (broker.history()[1].id, "finished"),
    ]
    broker.close()
    (backup,) = share.glob(f"{DATABASE}.version-1.*")
    old = sqlite3.connect(backup)
    assert old.execute("PRAGMA user_version").fetchone() == (1,)
    assert old.execute("SELECT id, ended FROM leases").fetchall() == [("0000abcd", None)]
    old.close()


def test_what_is_acknowledged_is_on_the_disk(share: Path) -> None:
    broker = Broker(share)
    assert broker.database.connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
    assert broker.database.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    broker.close()


def test_a_newer_store_is_refused_and_not_changed(share: Path, cli: Cli) -> None:
    path = share / DATABASE
    store = sqlite3.connect(path)
    store.execute(f"PRAGMA user_version = {VERSION + 1}")
    store.close()
    before = path.read_bytes()
    assert "written by a newer gpuyard" in cli("lease", "1", "--", "true", status=1).stderr
    assert "written by a newer gpuyard" in cli("who", status=1).stderr
    assert path.read_bytes() == before


def test_a_damaged_store_is_a_sentence_and_recovers_with_what_is_held(
    share: Path, cli: Cli, start: Start, who: Who
) -> None:
    leased = start("lease", "3", "--", "sh", "-c", "echo up; exec sleep 60")
    assert leased.stdout is not None and leased.stdout.readline() == "up\n"
    before = holders(who())
    for suffix in ("-wal", "-shm"):
        (share / f"{DATABASE}{suffix}").unlink(missing_ok=True)
    (share / DATABASE).write_bytes(b"SQLite format 3\0" + os.urandom(20_000))
    for command in (("lease", "1", "--now", "--", "true"), ("who",)):
        said = cli(*command, status=1).stderr
        assert "gpuyard share recover" in said and "running work is not harmed" in said
    assert "the 1 leases that are held now" in cli("share", "recover").stderr
    assert holders(who()) == before and leased.poll() is None
    assert cli("lease", "5", "--now", "--", "true")
    assert cli("lease", "6", "--now", "--", "true", status=75)
    assert len(list(share.glob(f"{DATABASE}.damaged-*"))) == 1
    leased.terminate()
    assert leased.wait(60) == 143
    cli("lease", "8", "--now", "--", "true")
    assert "Nothing is wrong" in cli("share", "recover").stderr


def test_what_can_be_read_of_a_damaged_store_is_kept(
    share: Path, cli: Cli, start: Start, who: Who
) -> None:
    cli("reserve", "2", "--from", "tomorrow 18:00", "--for", "12h")
    cli("share", "drain", "--gpus", "7")
    leased = start("lease", "1", "--", "sh", "-c", "echo up; exec sleep 60")
    assert leased.stdout is not None and leased.stdout.readline() == "up\n"
    with sqlite3.connect(share / DATABASE) as store:
        store.execute(  # a history of 500 leases more
            "WITH RECURSIVE more (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM more WHERE n < 500)"
            ' INSERT INTO leases (id, uid, user, "group", pid, process_start, boot_id, command,'
            ' project, count, wanted, parts, asked, gpus, start, "end", ended)'
            " SELECT 'old' || n, 0, 'ann', 'ann', 1, 1, 'x', 'train', '', 1, '[]', 1000000, n, '[3]',"
            " n, n + 60, 'finished' FROM more"
        )
        roots = [page for (page,) in store.execute("SELECT rootpage FROM sqlite_master")]
        before = len(store.execute("SELECT 1 FROM leases").fetchall())
    store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    store.close()
    with (share / DATABASE).open("r+b") as file:  # one page in the midst of the history
        file.seek((max(roots) + 5) * 4096)
        file.write(b"\xff" * 4096)
    said = cli("share", "recover").stderr
    assert "the 1 leases that are held now" in said and "2 reservations" in said
    found = who()
    assert sorted(holders(found)) == [0] and leased.poll() is None
    assert [one["count"] for one in found["reservations"]] == [2]
    assert [gpu["index"] for gpu in found["gpus"] if gpu["drained"]] == [7]
    broker = Broker(share)
    kept = broker.history()
    broker.close()
    assert before * 0.8 < len(kept) < before
    assert {lease.ended for lease in kept} == {None, "finished"}


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "[]",
        '{"gpus": 3}',
        '{"gpus": [{"index": 0, "name": "x", "colour": "red"}]}',
        '{"gpus": [], "rules": {"half_life_seconds": "a day"}}',
        '{"gpus": [], "rates": [1]}',
        '{"gpus": [{"index": 0, "name": "x"}], "grace_seconds": "soon"}',
        '{"gpus": [{"index": "0", "name": "x"}]}',
    ],
)
def test_a_damaged_list_of_gpus_is_a_sentence(share: Path, cli: Cli, text: str) -> None:
    (share / "share.json").write_text(text, encoding="utf-8")
    for command in (("lease", "1", "--now", "--", "true"), ("who",)):
        assert "share.json can't be read" in cli(*command, status=1).stderr


def test_another_programs_database_is_left_alone(share: Path) -> None:
    for found in share.glob(f"{DATABASE}*"):
        found.unlink()
    store = sqlite3.connect(share / DATABASE)
    store.execute("CREATE TABLE theirs (a)")
    store.close()
    with pytest.raises(GpuyardError, match="another program's"):
        Broker(share)


def test_one_user_cant_fill_the_queue(share: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuyard.share.store.broker._MOST_OF_ONE_USER", 3)
    broker = Broker(share)
    locks = [broker.ask(this_process(), LeaseRequest(count=8))[1] for _ in range(3)]
    with pytest.raises(GpuyardError, match="the most that one user can have"):
        broker.ask(this_process(), LeaseRequest())
    for lock in locks:
        os.close(lock)
    broker.close()


def _holding(broker: Broker, request: LeaseRequest) -> tuple["subprocess.Popen[bytes]", int]:
    """A process that has the lock of a lease and not this process's pid."""
    turn, lock = broker.ask(this_process(), request)
    with broker.database.transaction() as connection:
        connection.execute("UPDATE leases SET pid = 0, process_start = 0")
    holder = subprocess.Popen(("sleep", "60"), pass_fds=(lock,))
    assert turn.lease.held
    return holder, lock


def test_leases_that_are_over_their_time_are_ended_together(
    share: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks waits for one grace, however many don't end by themselves."""
    command = ("sh", "-c", "trap '' TERM; echo started; while :; do sleep 1; done")
    launchers = [start("lease", "1", "--for", "8s", "--", *command) for _ in range(3)]
    for launcher in launchers:
        assert launcher.stdout is not None and launcher.stdout.readline() == "started\n"
        launcher.kill()
        launcher.wait()
    broker = Broker(share)
    held = broker.state().held
    assert len(held) == 3
    while broker.clock.boot() < max(lease.until_boot or 0.0 for lease in held):
        time.sleep(0.05)
    stopped: list[int] = []
    stop = processes.stop

    def count(leases: Sequence[processes.Marks], grace_seconds: float) -> set[str]:
        stopped.append(len(leases))
        return stop(leases, grace_seconds)

    monkeypatch.setattr(processes, "stop", count)
    turn, lock = broker.ask(this_process(), LeaseRequest(8, waits=False))
    os.close(lock)
    assert turn.lease.held and stopped == [3]
    assert [lease.ended for lease in broker.history()[:3]] == ["time"] * 3
    broker.close()


def test_a_damaged_store_stays_where_it_is_if_no_new_one_can_be_made(
    share: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a full disk: its history would be lost to the next `share recover`."""
    (share / DATABASE).write_bytes(b"damaged")

    def fail(*_: object, **__: object) -> None:
        raise GpuyardError("the disk is full")

    with monkeypatch.context() as full:
        full.setattr(Broker, "_fill", fail)
        with pytest.raises(GpuyardError, match="the disk is full"):
            recover(share)
    assert (share / DATABASE).read_bytes() == b"damaged"
    found = recover(share)
    assert found is not None and found.aside.read_bytes() == b"damaged"


def test_a_store_that_is_made_anew_has_what_is_held_from_the_first_moment_on(
    share: Path, cli: Cli, who: Who
) -> None:
    """Whoever asks before `share recover` is done, or where nobody ran it, gets no GPU that another holds."""
    before = Broker(share)
    _, lock = before.ask(this_process(), LeaseRequest(8))
    for path in share.glob(f"{DATABASE}*"):
        path.unlink()
    with pytest.raises(GpuyardError, match=r"was made anew a moment ago|no lease can be given"):
        before.ask(this_process(), LeaseRequest(waits=False))
    after = Broker(share)
    with pytest.raises(NoneFree):
        after.ask(this_process(), LeaseRequest(waits=False))
    assert set(holders(who())) == set(range(8))
    with pytest.raises(GpuyardError, match="was made anew a moment ago"):
        before.ask(this_process(), LeaseRequest(waits=False))
    os.close(lock)
    assert after.ask(this_process(), LeaseRequest(8))[0].lease.held
    for broker in (before, after):
        broker.close()
